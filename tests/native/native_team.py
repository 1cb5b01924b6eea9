"""A team of rank processes that lives over many examples and does what it is told, by name.

A program is a function of a module: `program(rank, *args)`. It is sent over a pipe, runs in the
rank's process, and what it returns comes back. Each process has two ears: the main one does one
program after the other, the side one answers while the main one is inside a long call.
"""

import ctypes
import faulthandler
import gc
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from trainmover import _native

PATIENCE_S = 40.0
PREPARE_S = 30.0
PR_SET_PDEATHSIG = 1

Program = Callable[..., Any]


class ProgramFailed(AssertionError):
    """A program raised in its rank. Carries the rank's traceback."""


class RankDied(AssertionError):
    """A rank's process ended while its answer was awaited."""


class RankHung(AssertionError):
    """A rank gave no answer. Carries the stacks of the whole team."""


@dataclass
class Rank:
    """What a rank process holds. Lives in the child only."""

    name: str
    host: str
    token: bytes
    folder: str  # of local sockets; goes with the team
    libcrypto: str  # "": links are not encrypted
    groups: dict[str, Any] = field(default_factory=dict)
    seats: dict[str, tuple[int, int]] = field(default_factory=dict)  # by group: seat, size
    shelf: dict[str, Any] = field(default_factory=dict)
    _endpoint: Any = None

    @property
    def endpoint(self) -> Any:
        if self._endpoint is None:
            self._endpoint = _native.Endpoint(
                self.token, self.host, folder=self.folder, libcrypto=self.libcrypto
            )
        return self._endpoint

    def close(self) -> None:
        """Leave as a process that ends in order does; the next use opens a new endpoint."""
        for group in self.groups.values():
            group.close()
        self.groups.clear()
        self.seats.clear()
        self.shelf.clear()
        if self._endpoint is not None:
            self._endpoint.close()
        self._endpoint = None
        gc.collect()


def _listen(rank: Rank, pipe: Connection) -> None:
    while True:
        try:
            program, args = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            answer = (True, program(rank, *args))
        except BaseException:  # noqa: BLE001  the rank's outermost frame: the test gets it
            answer = (False, traceback.format_exc())
        pipe.send(answer)


def _live(rank: Rank, main: Connection, side: Connection, log: int) -> None:
    """The child from fork to end. Dies with the test's process, whatever happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    gc.freeze()  # what the test's process had lives on unvisited, in shared pages
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(file=log)
    faulthandler.register(signal.SIGUSR1, file=log, all_threads=True)
    torch.set_num_threads(1)
    threading.Thread(target=_listen, args=(rank, side), daemon=True).start()
    _listen(rank, main)


class Player:
    """The test's handle of one rank process."""

    def __init__(self, name: str, host: str, token: bytes, folder: str, libcrypto: str) -> None:
        self.name, self.host = name, host
        self.code: int | None = None
        self.busy = 0  # programs begun on the main ear whose answers have not been taken
        self._closed = False
        self._log = os.memfd_create(f"log-{name}")
        self._main, main = Pipe()
        self._side, side = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _live(Rank(name, host, token, folder, libcrypto), main, side, self._log)
            finally:
                os._exit(70)
        self._pidfd = os.pidfd_open(self.pid)
        main.close()
        side.close()

    def start(self, program: Program, *args: Any) -> None:
        """Begin a program on the main ear; `finish` gives its result."""
        self._main.send((program, args))
        self.busy += 1

    def finish(self) -> Any:
        answer = self._answer(self._main)
        self.busy -= 1
        return answer

    def ask(self, program: Program, *args: Any) -> Any:
        self.start(program, *args)
        return self.finish()

    def tell(self, program: Program, *args: Any) -> Any:
        """Run a program beside the one that the main ear is busy with."""
        self._side.send((program, args))
        return self._answer(self._side)

    def _answer(self, pipe: Connection) -> Any:
        ready = wait([pipe, self._pidfd], PATIENCE_S)
        if pipe in ready or pipe.poll():
            with suppress(EOFError, ConnectionResetError):
                ok, value = pipe.recv()
                if not ok:
                    raise ProgramFailed(f"in rank {self.name}:\n{value}")
                return value
        if not ready:
            raise RankHung(f"rank {self.name} gave no answer in {PATIENCE_S} s")
        raise RankDied(f"rank {self.name} ended with {self.await_end()}:\n{self.log()}")

    def await_end(self) -> int:
        """The process's exit code, or minus the signal that ended it."""
        if self.code is None:
            assert wait([self._pidfd], PATIENCE_S), f"rank {self.name} does not end"
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def signal(self, number: signal.Signals) -> None:
        assert self.code is None
        os.kill(self.pid, number)

    def stop(self) -> None:
        """SIGSTOP, and wait until it has really stopped."""
        self.signal(signal.SIGSTOP)
        self.await_stop()

    def await_stop(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def end(self) -> int:
        """SIGKILL, reaped."""
        if self.code is None:
            self.signal(signal.SIGKILL)
        return self.await_end()

    def log(self) -> str:
        """What the process wrote, with a crash's stack."""
        return os.pread(self._log, 1 << 20, 0).decode(errors="replace")

    def stacks(self) -> str:
        """Where every thread of the process is, as far as that can be told."""
        if self.code is not None:
            return f"ended with {self.code}\n{self.log()}"
        before = len(self.log())
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGUSR1)
        time.sleep(0.3)
        ours = [line for line in self.log()[before:].splitlines() if "/site-packages/" not in line]
        return "\n".join(ours) + _native_stacks(self.pid)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.end()
        self._main.close()
        self._side.close()
        os.close(self._pidfd)
        os.close(self._log)


def _native_stacks(pid: int) -> str:
    """The C++ frames, when the machine has a debugger and TRAINMOVER_TEST_GDB asks for it."""
    gdb = shutil.which("gdb")
    if gdb is None or "TRAINMOVER_TEST_GDB" not in os.environ:
        return ""
    command = [gdb, "-p", str(pid), "-batch", "-ex", "thread apply all bt 14"]
    with suppress(subprocess.TimeoutExpired):
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return "\n".join(line for line in told.stdout.splitlines() if line.startswith(("#", "Thr")))
    return "gdb took too long\n"


class Team:
    """Players by position; position i runs on `hosts[i]`, equal names are one machine."""

    def __init__(self, hosts: Sequence[str], libcrypto: str = "") -> None:
        self.libcrypto = libcrypto
        self.token = secrets.token_bytes(16)
        self.hosts = tuple(hosts)
        self._folder = tempfile.mkdtemp(prefix="tm-")
        self._born: list[Player] = []
        self.players = [self.newcomer(host) for host in hosts]

    @property
    def size(self) -> int:
        return len(self.players)

    def newcomer(self, host: str) -> Player:
        """A process that has no seat yet. Ends with the team."""
        player = Player(f"{len(self._born)}@{host}", host, self.token, self._folder, self.libcrypto)
        self._born.append(player)
        return player

    def replace(self, position: int) -> Player:
        """A new process at that position, on the same machine. The old one is left as it is."""
        self.players[position] = self.newcomer(self.hosts[position])
        return self.players[position]

    def all(self, program: Program, *args: Any) -> list[Any]:
        """The program at every player at once; results by position."""
        return self.each([(player, args) for player in self.players], program)

    def each(self, jobs: Sequence[tuple[Player, tuple[Any, ...]]], program: Program) -> list[Any]:
        """The program at these players at once, each with its own arguments."""
        for player, args in jobs:
            player.start(program, *args)
        return self.finish([player for player, _ in jobs])

    def finish(self, players: Sequence[Player]) -> list[Any]:
        """Everybody's answer. Raises the first failure, with all others in its words."""
        answers, failures = [], []
        for player in players:
            try:
                answers.append(player.finish())
            except RankHung as hung:
                raise RankHung("\n".join(map(str, [*failures, hung, self.stacks()]))) from None
            except AssertionError as failure:
                failures.append(failure)
        if failures:
            raise type(failures[0])("\n".join(map(str, failures)))
        return answers

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait for a fact of the ranks."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > deadline:
                raise RankHung(f"never happened: {what}\n{self.stacks()}")
            time.sleep(0.002)

    def stacks(self) -> str:
        return "\n".join(f"--- {player.name}\n{player.stacks()}" for player in self.players)

    def rest(self) -> bool:
        """Have everybody leave. True: the team is as good as new, for the next test."""
        if len(self._born) > self.size or any(p.busy or p.code is not None for p in self._born):
            return False
        try:
            self.all(leave)
        except AssertionError:
            return False
        return True

    def close(self) -> None:
        for player in self._born:
            if player.code is None:
                player.signal(signal.SIGKILL)
        for player in self._born:
            player.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def open_seat(rank: Rank, name: str, seat: int, size: int) -> bytes:
    """Make the group, once, and return the seat's card."""
    if name not in rank.groups:
        rank.groups[name] = rank.endpoint.group(name, seat, size)
        rank.seats[name] = (seat, size)
    return bytes(rank.groups[name].card())


def prepare(rank: Rank, name: str, epoch: int, cards: list[bytes]) -> None:
    rank.groups[name].prepare(epoch, cards, PREPARE_S)


def switch(rank: Rank, name: str, epoch: int) -> dict[str, int]:
    return dict(rank.groups[name].switchover(epoch))


def enter(rank: Rank, name: str, epoch: int, cards: list[bytes]) -> dict[str, int]:
    prepare(rank, name, epoch, cards)
    return switch(rank, name, epoch)


def links_by_peer(rank: Rank) -> dict[int, tuple[str, int]]:
    """Kind and socket inode of each live link."""
    return {link["peer"]: (link["kind"], link["inode"]) for link in rank.endpoint.links()}


def incarnation(rank: Rank) -> int:
    return int(rank.endpoint.incarnation)


def leave(rank: Rank) -> None:
    rank.close()


class Formation:
    """A group over some players, seat by seat, and the epoch it is in."""

    def __init__(self, team: Team, name: str, players: Sequence[Player] | None = None) -> None:
        self.team, self.name, self.epoch = team, name, 0
        self.players = list(team.players if players is None else players)

    @property
    def size(self) -> int:
        return len(self.players)

    def cards(self) -> list[bytes]:
        places = [(p, (self.name, seat, self.size)) for seat, p in enumerate(self.players)]
        return self.team.each(places, open_seat)

    def advance(self) -> list[dict[str, int]]:
        """The next epoch on every seat: both phases. Returns the switchover's figures by seat."""
        self.epoch += 1
        cards = self.cards()
        return self.all(enter, self.epoch, cards)

    def all(self, program: Program, *args: Any) -> list[Any]:
        """`program(rank, group name, *args)` on every seat at once."""
        return self.team.each([(p, (self.name, *args)) for p in self.players], program)

    def refill(self, *seats: int) -> list[dict[str, int]]:
        """The next epoch with new processes in these seats.

        Asserts that all other links are the very sockets they were. Those who had the seats are
        left as they are.
        """
        before = {} if len(seats) == self.size else self.links(seats)
        for seat in seats:
            self.players[seat] = self.team.newcomer(self.players[seat].host)
        figures = self.advance()
        after = self.links(())
        assert {pair: after[pair] for pair in before} == before
        return figures

    def links(self, without: Sequence[int] = ()) -> dict[tuple[int, int], tuple[str, int]]:
        """Kind and inode of the link from seat to seat, as each end sees it."""
        seats = [seat for seat in range(self.size) if seat not in without]
        players = [(self.players[seat], ()) for seat in seats]
        seat_of = dict(zip(self.team.each(players, incarnation), seats, strict=True))
        seen = zip(seats, self.team.each(players, links_by_peer), strict=True)
        return {
            (seat, seat_of[peer]): link
            for seat, links in seen
            for peer, link in links.items()
            if peer in seat_of
        }

    def others(self, *seats: int) -> list[Player]:
        return [player for seat, player in enumerate(self.players) if seat not in seats]

    def start(self, program: Program, *args: Any) -> None:
        for player in self.players:
            player.start(program, self.name, *args)

    def tell(self, program: Program, *args: Any) -> list[Any]:
        return [player.tell(program, self.name, *args) for player in self.players]
