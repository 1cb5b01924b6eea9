# SPDX-License-Identifier: Apache-2.0
"""Verdicts on what was found on a machine, and what to do about it. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainmover.descriptors import shares

MB, GB = 10**6, 10**9
PYTHON_MIN = (3, 11)
FILES_MIN, FILES_WELL = 256, 4096
WORKERS_OWN = 64
"""Descriptors that a worker uses itself, about."""
MEMORY_MIN, MEMORY_WELL = 500 * MB, 2 * GB
DISK_MIN, DISK_WELL = 50 * MB, GB
SHARED_MIN = 64 * MB
CLOCK_STEP_S = 0.5
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_BOUND = re.compile(r"(>=|<=|==|<|>)\s*([\d.]+)")


class State(StrEnum):
    """broken: a job would not start or not go on. warn: it would, and something is amiss."""

    WELL = "ok"
    WARN = "warn"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """do: how to mend it; "" if there is nothing to mend."""

    of: str
    state: State
    found: str
    do: str = ""


def _well(of: str, found: str) -> Finding:
    return Finding(of, State.WELL, found)


def python(version: Sequence[int]) -> Finding:
    found = ".".join(map(str, version[:3]))
    if tuple(version[:2]) >= PYTHON_MIN:
        return _well("Python", found)
    wanted = ".".join(map(str, PYTHON_MIN))
    do = f"Install Python {wanted} or newer: make setup PYTHON=python3.12"
    return Finding("Python", State.BROKEN, f"{found}, and {wanted} is needed", do)


def package(name: str, wanted: str, installed: str) -> Finding:
    """wanted: bounds as in a requirement, ">=2.11,<2.14"; installed: "" if it is not."""
    if not installed:
        do = f"pip install '{name}{wanted}'"
        return Finding(name, State.BROKEN, "not installed", do)
    if within(installed, wanted):
        return _well(name, installed)
    do = f"pip install '{name}{wanted}'"
    return Finding(name, State.BROKEN, f"{installed}, and {wanted} is needed", do)


def within(version: str, bounds: str) -> bool:
    """
    >>> within("2.13.1+cpu", ">=2.11,<2.14"), within("2.14.0", "<2.14,>=2.11"), within("3", ">=2.9")
    (True, False, True)
    """
    here = _numbers(version)
    for sign, bound in _BOUND.findall(bounds):
        there = _numbers(bound)
        width = max(len(here), len(there))
        one, other = (part + (0,) * (width - len(part)) for part in (here, there))
        holds = {
            ">=": one >= other, "<=": one <= other, "==": one == other, "<": one < other,
            ">": one > other,
        }  # fmt: skip
        if not holds[sign]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = _VERSION.match(version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def torch_loads(complaint: str, took_s: float) -> Finding:
    """complaint: what was said instead; "" if it loads."""
    if not complaint:
        return _well("torch loads", f"in {took_s:.1f} s, and is as trainmover knows it")
    do = "Install another torch, within the range above; or build trainmover anew: make setup"
    return Finding("torch loads", State.BROKEN, complaint, do)


def native(built: bool, compiler: str, cmake: str) -> Finding:
    """compiler, cmake: where they are; "" if nowhere. Both build it."""
    if built:
        return _well("native communicator", "built")
    missing = " and ".join(
        name for name, there in (("a C++20 compiler", compiler), ("CMake", cmake)) if not there
    )
    do = f"Install {missing}, then: make setup" if missing else "Build it: make setup"
    found = "not built: groups are carried by gloo, and all is slower"
    return Finding("native communicator", State.WARN, found, do)


def shared_memory(free: int | None, why: str) -> Finding:
    """free: bytes; None: it cannot be made, and `why`."""
    if free is None:
        do = "Allow memfd_create (seccomp), or run on Linux 5 or newer."
        return Finding("shared memory", State.BROKEN, f"cannot be made: {why}", do)
    if free < SHARED_MIN:
        do = "Give the container more: docker run --shm-size 1g"
        return Finding("shared memory", State.WARN, f"{_size(free)} free in /dev/shm", do)
    return _well("shared memory", f"{_size(free)} free")


def files(soft: int, most: int) -> Finding:
    """Descriptors of a process. most: to which a run raises the soft limit."""
    its = shares(most)
    peers = its.strangers + its.native_strangers + its.clients
    found = f"{most} a process" + f" (a run raises {soft})" * (soft < most)
    found += (
        f": {its.strangers} strangers at a listener, {its.proved} HTTP connections and "
        f"{its.streams} streams a role, {max(0, most - peers - WORKERS_OWN)} files of a script"
    )
    if most >= FILES_WELL:
        return _well("file descriptors", found)
    state = State.WARN if most >= FILES_MIN else State.BROKEN
    do = f"Before the run, raise the hard limit (nofile) to {FILES_WELL}: ulimit -Hn {FILES_WELL}"
    return Finding("file descriptors", state, found, do)


def memory(free: int) -> Finding:
    do = "End something else, or take a machine with more."
    return _amount("memory", free, MEMORY_MIN, MEMORY_WELL, f"{_size(free)} free", do)


def disk(of: str, path: str, free: int | None, why: str = "") -> Finding:
    """free: None if nothing can be written there, and `why`."""
    if free is None:
        do = "Name a place that can be written: "
        do += "TRAINMOVER_HOME" if of == "run folder" else f"--{of}"
        return Finding(of, State.BROKEN, f"{path} cannot be written: {why}", do)
    do = "Make room there, or name another place."
    return _amount(of, free, DISK_MIN, DISK_WELL, f"{path}, {_size(free)} free", do)


def _amount(of: str, free: int, least: int, enough: int, found: str, do: str) -> Finding:
    if free >= enough:
        return _well(of, found)
    return Finding(of, State.WARN if free >= least else State.BROKEN, f"{found}: little", do)


def clock(stepped_s: float, before_install_s: float) -> Finding:
    """stepped_s: by how much the clock went further than time did while it was watched.
    before_install_s: for which it is behind the time at which trainmover was installed."""
    if before_install_s > 0:
        do = "Set it: no decision depends on it, but times in journals and reports do."
        return Finding("clock", State.WARN, "it shows a time before trainmover was installed", do)
    if abs(stepped_s) > CLOCK_STEP_S:
        do = "Let one time service keep it, slowly (chrony, systemd-timesyncd)."
        return Finding("clock", State.WARN, f"it was set by {stepped_s:.1f} s meanwhile", do)
    return _well("clock", "goes evenly")


def loopback(why: str) -> Finding:
    if not why:
        return _well("loopback", "127.0.0.1 answers")
    do = "Have the interface lo up (ip link set lo up), and no filter on it."
    return Finding("loopback", State.BROKEN, f"127.0.0.1 does not answer: {why}", do)


def controller(address: str, ours: str, took_ms: float, why: str) -> Finding:
    """ours: the address of this host by which it was reached; why: it was not."""
    if why:
        do = "See that the run lives, was started with --bind, and no firewall is between."
        return Finding("controller", State.BROKEN, f"{address} does not answer: {why}", do)
    found = f"{address} answers in {took_ms:.1f} ms; machines here would be dialled at {ours}"
    if ours.startswith("127.") and not address.startswith("127."):
        do = "Have this host's name and routes lead to an address that others reach."
        return Finding("controller", State.WARN, found, do)
    return _well("controller", found)


def broken(findings: Sequence[Finding]) -> bool:
    return any(one.state is State.BROKEN for one in findings)


def lines(rooms: Mapping[str, Sequence[Finding]]) -> list[str]:
    """Return a line for each verdict, with what to do, then how many are not well."""
    told: list[str] = []
    for room, findings in rooms.items():
        told.append(room)
        for one in findings:
            told.append(f"  {one.state.upper():<8}{one.of:<21}{one.found}")
            told += [f"  {'':<8}{'':<21}-> {one.do}"] if one.do else []
    every = [one for findings in rooms.values() for one in findings]
    bad = sum(one.state is State.BROKEN for one in every)
    warned = sum(one.state is State.WARN for one in every)
    if bad:
        told.append(f"{bad} broken: no job would run here before that is mended")
    elif warned:
        told.append(f"a job runs here; {warned} could be better")
    else:
        told.append("all is well")
    return told


def _size(count: int) -> str:
    return f"{count / GB:.1f} GB" if count >= GB else f"{count / MB:.0f} MB"
