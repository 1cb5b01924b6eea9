# SPDX-License-Identifier: Apache-2.0
"""One of N seats is given to another process, in G groups at once: what a stayer spends.

Ours: phase 1 (`prepare`) opens the missing links while training runs, phase 2 (`switchover`) is
where it stands still. gloo has no phases and no link that could stay: all N rebuild all G groups.
To be kind to it, only the building is timed, in processes that have no other groups.

Phase 2 waits for nobody, so only as many processes do it at once as there are cores: what is
measured is its own time and not the wait for a core, which a machine of a job has. gloo's ranks
wait for each other and have to build together; here they share the cores while they do.
"""

import os
import resource
import socket
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

from bench.collectives.arms import OURS_S, TOKEN, gloo_group
from bench.collectives.crew import Crew, CrewError
from bench.collectives.meeting import Meeting

GLOO_S = 120.0
# With more links than this gloo gets one trial: it takes long, and leaves as many closed sockets
# waiting in the kernel for a minute.
GLOO_LINKS_MANY = 5000


@dataclass(frozen=True)
class Switched:
    """Of one stayer, or the middle of many; milliseconds, of all groups together.

    background_ms  phase 1, while training would run (gloo: 0)
    still_ms       phase 2 (gloo: the whole rebuild)
    opened         links that had to be opened
    """

    background_ms: float
    still_ms: float
    opened: int


@dataclass(frozen=True)
class Case:
    arm: str
    processes: int
    groups: int


@dataclass
class Switchovers:
    """trials: medians over the stayers, and of the stayer that was worst, one pair a trial."""

    middle: dict[Case, list[Switched]]
    worst: dict[Case, list[Switched]]
    left_out: dict[Case, str]
    loads: list[float]


@dataclass(frozen=True)
class Plan:
    trials: int
    gloo_trials: int
    processes: tuple[int, ...]
    groups: tuple[int, ...]
    arms: tuple[str, ...] = ("ours shm", "ours tcp")


class Mover:
    """In a process: an endpoint with G groups, and gloo groups."""

    def __init__(self, place: int) -> None:
        allow_many_files()
        self._place = place
        self._endpoint: Any = None
        self._groups: list[Any] = []
        self._gloo: list[Any] = []
        self._meeting = Meeting()
        self._opened = 0

    def open(self, arm: str, seat: int, size: int, groups: int) -> list[bytes]:
        """The cards of its groups, from a fresh endpoint."""
        from trainmover import _native

        host = "one host" if arm == "ours shm" else f"host {self._place}"
        self._endpoint = _native.Endpoint(TOKEN, host)
        self._groups = [self._endpoint.group(f"g{i}", seat, size) for i in range(groups)]
        return self.cards()

    def cards(self) -> list[bytes]:
        return [bytes(group.card()) for group in self._groups]

    def prepare(self, epoch: int, cards: list[list[bytes]]) -> float:
        """Milliseconds. cards  [group][seat]"""
        self._opened = self._endpoint.stats()["links_opened"]
        before = time.perf_counter_ns()
        for group, its in zip(self._groups, cards, strict=True):
            group.prepare(epoch, its, OURS_S)
        return (time.perf_counter_ns() - before) / 1e6

    def switchover(self, epoch: int) -> tuple[float, int]:
        """Milliseconds, and links opened since `prepare` began."""
        before = time.perf_counter_ns()
        for group in self._groups:
            group.switchover(epoch)
        took = time.perf_counter_ns() - before
        return took / 1e6, self._endpoint.stats()["links_opened"] - self._opened

    def leave(self) -> None:
        for group in self._groups:
            group.close()
        if self._endpoint is not None:
            self._endpoint.close()
        self._groups, self._endpoint = [], None

    def serve_store(self) -> int:
        return self._meeting.serve()

    def visit_store(self, port: int) -> None:
        self._meeting.visit(port)

    def rebuild(self, seat: int, size: int, groups: int) -> Switched:
        sockets = connections()
        before = time.perf_counter_ns()
        for i in range(groups):
            room = self._meeting.room(str(i))
            self._gloo.append(gloo_group(room, seat, size, GLOO_S))
        took = time.perf_counter_ns() - before
        return Switched(0.0, took / 1e6, connections() - sockets)


def allow_many_files() -> None:
    """As many as this process may ask for."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def connections() -> int:
    """Connected sockets of this process."""
    return sum(_is_connected(int(name)) for name in os.listdir("/proc/self/fd"))


def _is_connected(number: int) -> bool:
    try:
        if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
            return False
        with socket.socket(fileno=os.dup(number)) as one:
            one.getpeername()
    except OSError:  # gone, or listening
        return False
    return True


def run(plan: Plan) -> Switchovers:
    """All cases; the arms of a case in turns."""
    found = Switchovers({}, {}, {}, [])
    for processes in plan.processes:
        for groups in plan.groups:
            _cases(found, plan, processes, groups)
            found.loads.append(os.getloadavg()[0])
            said = f"switchover, {processes} processes, {groups} groups"
            print(f"{said}: load {found.loads[-1]:.1f}", file=sys.stderr, flush=True)
    return found


def _cases(found: Switchovers, plan: Plan, processes: int, groups: int) -> None:
    with Crew(processes + 1, Mover) as crew:
        for trial in range(plan.trials):
            for arm in plan.arms:
                _note(found, Case(arm, processes, groups), _ours(crew, arm, processes, groups))
            gloo = Case("gloo", processes, groups)
            if trial < gloo_trials(plan, gloo) and gloo not in found.left_out:
                _try_gloo(found, gloo)


def gloo_trials(plan: Plan, case: Case) -> int:
    links = case.processes * (case.processes - 1) // 2 * case.groups
    return min(plan.gloo_trials, 1 if links > GLOO_LINKS_MANY else plan.gloo_trials)


def _try_gloo(found: Switchovers, case: Case) -> None:
    """It may need more files or ports than this host allows: a result too."""
    try:
        _note(found, case, _rebuilt(case.processes, case.groups))
    except CrewError as failed:
        found.left_out[case] = f"failed: {str(failed).splitlines()[-1]}"


def _note(found: Switchovers, case: Case, stayers: list[Switched]) -> None:
    middle, worst = (
        Switched(
            over([one.background_ms for one in stayers]),
            over([one.still_ms for one in stayers]),
            int(over([float(one.opened) for one in stayers])),
        )
        for over in (statistics.median, max)
    )
    found.middle.setdefault(case, []).append(middle)
    found.worst.setdefault(case, []).append(worst)


def _ours(crew: Crew, arm: str, size: int, groups: int) -> list[Switched]:
    """Every stayer's: the last seat goes from process size - 1 to process size."""
    everyone, spare, leaver = range(size), size, size - 1
    opened = crew.each("open", {place: (arm, place, size, groups) for place in everyone})
    cards = [list(its) for its in zip(*opened, strict=True)]
    crew.all("prepare", 1, cards, seats=everyone)
    crew.all("switchover", 1, seats=everyone)
    for its, card in zip(cards, crew.one(spare, "open", arm, leaver, size, groups), strict=True):
        its[leaver] = card
    members = [*range(leaver), spare]
    background = crew.all("prepare", 2, cards, seats=members)
    cores = len(os.sched_getaffinity(0))
    waves = [members[first : first + cores] for first in range(0, size, cores)]
    still = [one for wave in waves for one in crew.all("switchover", 2, seats=wave)]
    crew.all("leave")
    stayers = zip(background[:-1], still[:-1], strict=True)
    return [Switched(one_ms, two_ms, opened) for one_ms, (two_ms, opened) in stayers]


def _rebuilt(size: int, groups: int) -> list[Switched]:
    with Crew(size, Mover) as crew:
        crew.all("visit_store", crew.one(0, "serve_store"))
        built: list[Switched] = crew.each(
            "rebuild", {seat: (seat, size, groups) for seat in range(size)}
        )
    return built[:-1]
