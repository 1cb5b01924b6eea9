# SPDX-License-Identifier: Apache-2.0
"""`trainmover doctor`: looks at the installation, the machine and the network."""

import argparse
import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from trainmover import communicators, errors
from trainmover.cli.doctor import verdicts
from trainmover.cli.doctor.verdicts import Finding
from trainmover.cli.exit_codes import DONE, FAILED
from trainmover.cli.output import say, say_json
from trainmover.descriptors import limit, raise_limit
from trainmover.errors import UserError
from trainmover.launch.runs import runs_home

CONNECT_S = 5.0
LOAD_S = 300.0
WATCHED_S = 0.1
_COMPILERS = ("c++", "g++", "clang++")
_REQUIRED = re.compile(r"([A-Za-z0-9_.-]+)\s*(.*)")
_LOAD = "import torch, trainmover.torch_internals"


def main(options: argparse.Namespace) -> int:
    """1 if something is broken."""
    address = None if options.connect is None else _address(options.connect)
    rooms = {
        "installation": installation(load=not options.quick),
        "machine": machine(options.journal),
        "network": network(address),
    }
    every = [one for findings in rooms.values() for one in findings]
    if options.json:
        told = {room: [asdict(one) for one in found] for room, found in rooms.items()}
        say_json({"broken": verdicts.broken(every), **told})
    else:
        say("\n".join(verdicts.lines(rooms)))
    return FAILED if verdicts.broken(every) else DONE


def _address(given: str) -> tuple[str, int]:
    host, colon, port = given.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
        raise UserError(
            f"--connect {given} is no address.",
            means="Nothing was looked at.",
            do="Give what the run shows: --connect 10.0.0.5:7070",
        )
    return host.strip("[]"), int(port)


# --- installation ---------------------------------------------------------------------------------


def installation(*, load: bool) -> list[Finding]:
    found = [verdicts.python(tuple(sys.version_info[:3])), *_packages()]
    torch_is_there = all(one.state is verdicts.State.WELL for one in found if one.of == "torch")
    if load and torch_is_there:
        found.append(_loads())
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), "")
    built = communicators.native_is_built()
    found.append(verdicts.native(built, compiler, shutil.which("cmake") or ""))
    return found


def _packages() -> list[Finding]:
    """torch, and of the others those that are missing or of another version."""
    found: list[Finding] = []
    for required in _required():
        name, wanted = required
        finding = verdicts.package(name, wanted, _version(name))
        if name == "torch" or finding.state is not verdicts.State.WELL:
            found.append(finding)
    return found


def _required() -> list[tuple[str, str]]:
    """Return what this installation says that it needs."""
    try:
        told = importlib.metadata.requires("trainmover") or []
    except importlib.metadata.PackageNotFoundError:  # Run from its sources.
        return [("torch", "")]
    matches = [_REQUIRED.match(one) for one in told if ";" not in one]
    return [(match[1], match[2].strip()) for match in matches if match is not None]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _loads() -> Finding:
    """Load torch in a process of its own: that takes seconds, and may end it."""
    begun = time.monotonic()
    code = _LOAD + ", trainmover._native" * communicators.native_is_built()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=LOAD_S
        )
    except subprocess.TimeoutExpired:
        return verdicts.torch_loads(f"it does not load within {LOAD_S:.0f} s", LOAD_S)
    said = done.stderr.strip().splitlines()
    why = "" if done.returncode == 0 else (said[-1] if said else f"status {done.returncode}")
    return verdicts.torch_loads(why, time.monotonic() - begun)


# --- machine --------------------------------------------------------------------------------------


def machine(journal: Path | None) -> list[Finding]:
    soft = limit()
    raise_limit()
    found = [
        _shared_memory(),
        verdicts.files(soft, limit()),
        verdicts.memory(psutil.virtual_memory().available),
        _disk("run folder", runs_home),
    ]
    if journal is not None:
        found.append(_disk("journal", lambda: journal.absolute().parent))
    found.append(_clock())
    return found


def _shared_memory() -> Finding:
    try:
        os.close(os.memfd_create("doctor"))
        place = os.statvfs("/dev/shm")
    except OSError as error:
        return verdicts.shared_memory(None, error.strerror or str(error))
    return verdicts.shared_memory(place.f_bavail * place.f_frsize, "")


def _disk(of: str, place: Callable[[], Path]) -> Finding:
    """A folder that is not there yet would be made in the next one above it that is."""
    try:
        path = place()
    except UserError as error:
        return verdicts.disk(of, "its folder", None, str(error).splitlines()[0])
    there = next(one for one in (path, *path.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return verdicts.disk(of, str(there), None, "permission denied")
    return verdicts.disk(of, str(path), shutil.disk_usage(there).free)


def _clock() -> Finding:
    installed = Path(errors.__file__).stat().st_mtime
    wall, steady = time.time(), time.monotonic()
    time.sleep(WATCHED_S)
    stepped = (time.time() - wall) - (time.monotonic() - steady)
    return verdicts.clock(stepped, installed - time.time())


# --- network --------------------------------------------------------------------------------------


def network(address: tuple[str, int] | None) -> list[Finding]:
    found = [verdicts.loopback(_loopback())]
    if address is not None:
        found.append(_controller(*address))
    return found


def _loopback() -> str:
    """Why a byte does not come through; "" if it does."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(CONNECT_S)
            with socket.create_connection(listener.getsockname(), CONNECT_S) as one:
                other, _ = listener.accept()
                with other:
                    one.sendall(b"?")
                    other.settimeout(CONNECT_S)
                    return "" if other.recv(1) == b"?" else "it was closed"
    except OSError as error:
        return error.strerror or str(error)


def _controller(host: str, port: int) -> Finding:
    begun = time.monotonic()
    try:
        with socket.create_connection((host, port), CONNECT_S) as link:
            took_ms = (time.monotonic() - begun) * 1e3
            ours = link.getsockname()[0]
    except OSError as error:
        why = error.strerror or str(error)
        return verdicts.controller(f"{host}:{port}", "", 0.0, why)
    return verdicts.controller(f"{host}:{port}", ours, took_ms, "")
