"""Programs that expect to fail: what an operation ended with, as a value."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from native_calls import Call, Staged, staged
from native_team import Rank, prepare, switch

from trainmover import _native

ENDED = {"Aborted", "PeerLost"}  # what a waiter may get when somebody else broke the group


@dataclass(frozen=True)
class Outcome:
    kind: str  # "ok" or the error's class
    text: str = ""
    rounds: int = 0


def outcome(operation: Callable[[], Any], rounds: int = 0) -> Outcome:
    """What the operation raises of the library's errors; any other error fails the program."""
    try:
        operation()
    except _native.NativeError as error:
        return Outcome(type(error).__name__, str(error), rounds)
    return Outcome("ok", "", rounds)


def try_prepare(rank: Rank, name: str, epoch: int, cards: list[bytes], timeout_s: float) -> Outcome:
    return outcome(lambda: rank.groups[name].prepare(epoch, cards, timeout_s))


def try_switch(rank: Rank, name: str, epoch: int) -> Outcome:
    return outcome(lambda: rank.groups[name].switchover(epoch))


def try_calls(rank: Rank, name: str, calls: list[Call]) -> Outcome:
    group, place = rank.groups[name], rank.seats[name]

    def run() -> None:
        for call in calls:
            staged(call, *place).run(group)

    return outcome(run)


def until_broken(rank: Rank, name: str, call: Call) -> Outcome:
    """The call again and again, until it does not work any more."""
    group, rounds = rank.groups[name], 0
    rank.shelf["rounds"] = 0
    while True:
        ended = outcome(lambda: staged(call, *rank.seats[name]).run(group), rounds)
        if ended.kind != "ok":
            return ended
        rounds += 1
        rank.shelf["rounds"] = rounds


def rounds_done(rank: Rank, name: str) -> int:
    return int(rank.shelf.get("rounds", 0))


def abort(rank: Rank, name: str, why: str = "the test says so") -> None:
    rank.groups[name].abort(why)


def broken(rank: Rank, name: str) -> str | None:
    reason = rank.groups[name].broken
    return None if reason is None else str(reason)


@dataclass
class Flood:
    """Work for one seat, with its memory."""

    ready: list[Staged]
    tickets: list[Any]


def lay_flood(rank: Rank, name: str, calls: list[Call]) -> None:
    """Make the memory of the calls, so that `flood` has nothing else to do than to begin them."""
    rank.shelf["flood"] = Flood([staged(call, *rank.seats[name]) for call in calls], [])


def flood(rank: Rank, name: str) -> list[Outcome]:
    """Begin all calls in the background, then wait for each."""
    work = rank.shelf["flood"]

    def begin(one: Staged) -> None:
        work.tickets.append(one.start(rank.groups[name]))

    begun = [outcome(lambda one=one: begin(one)) for one in work.ready]  # type: ignore[misc]
    return begun + [outcome(lambda t=t: t.wait(60)) for t in work.tickets]  # type: ignore[misc]


PATTERN = 0x5C


def abort_and_paint(rank: Rank, name: str) -> None:
    """Abort; from its return on the memory is ours, so paint it."""
    rank.groups[name].abort("a random moment")
    for one in rank.shelf["flood"].ready:
        for held, _ in [*one.untouched, *one.expected]:
            held.memory.fill_(PATTERN)


def paint_is_dry(rank: Rank, name: str) -> bool:
    """Whether nobody has written into the painted memory since. Drops the memory."""
    work = rank.shelf.pop("flood")
    held = [held for one in work.ready for held, _ in [*one.untouched, *one.expected]]
    return all(bool((one.memory == PATTERN).all()) for one in held)


def prepare_beside(rank: Rank, name: str, epoch: int, cards: list[bytes]) -> None:
    """Prepare in a thread of its own; `prepared` tells how it ended."""

    def run() -> None:
        rank.shelf["prepared"] = outcome(lambda: prepare(rank, name, epoch, cards))

    rank.shelf["preparing"] = threading.Thread(target=run, daemon=True)
    rank.shelf["preparing"].start()


def prepared(rank: Rank, name: str) -> Outcome:
    """How the preparation in the background has ended. Waits for it."""
    rank.shelf["preparing"].join()
    ended: Outcome = rank.shelf["prepared"]
    return ended


def try_enter(rank: Rank, name: str, epoch: int, cards: list[bytes]) -> Outcome:
    def run() -> None:
        prepare(rank, name, epoch, cards)
        switch(rank, name, epoch)

    return outcome(run)
