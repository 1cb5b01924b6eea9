# SPDX-License-Identifier: Apache-2.0
"""Where the script stands in its data: the loops over batches it is in, outermost first.

A loop that begins in the body of another lies inside of it, and is over when the outer one fetches
again. Batches may also be drawn side by side, as by `zip(job.batches(a), job.batches(b))` or with
`next()` from an iterator that was made before. Which of the two it is shows only later: a loop that
goes on after an older one has fetched was not inside of it. Then the older one is *beside*: it is
nobody's surroundings any more, and its place is kept next to that of the loops. Where one of those
is at its end and another begins over the same loader, it is that one, begun anew.

    main      the loop begun last of those that are not beside: with those around it, the place
    fetching  the loop that fetches; mostly that is the main one
"""

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from trainmover.errors import StateMismatch
from trainmover.ids import Step
from trainmover.protocol.messages import Draw
from trainmover.state.kinds.generators import Generator
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.rounds import Rounds


@dataclass(eq=False)
class Loop:
    """A loop over batches that the script is in.

    ordinal     how many began before it: since the last fetch of the loop around it, or of all
    path        the ordinals of all around it, and its own: what it is known by in another process
    number      how many began before it, of all
    begun_at    fetches of any loop until it began
    fetched_at  the same at its last fetch; 0: it has not fetched
    here        its place before the next fetch, if that is known already
    position    just before its last fetch, as `rng` and `calls`, the steps made until then
    at          instructions at which the script's frames stood then
    among       those that began beside each other in one round of the loop around, itself with them
    inside      those that began in its body since its last fetch
    over        its loader
    passes      over that, by loops that it goes on from: see `Loops._goes_on_from`
    had         passes, at its end
    """

    batches: "weakref.ref[Batches]"
    over: object
    ordinal: int
    around: "Loop | None"
    number: int
    begun_at: int
    among: Rounds
    fetched_at: int = 0
    beside: bool = False
    here: Any = None
    position: Any = None
    rng: bytes = b""
    calls: int = 0
    at: list[int] = field(default_factory=list)
    inside: Rounds = field(default_factory=Rounds)
    passes: int = 0
    had: int = 0
    ended: bool = False

    @property
    def path(self) -> list[int]:
        return [*(self.around.path if self.around else []), self.ordinal]

    @property
    def open(self) -> bool:
        """Whether the script may still fetch: a loop that was left by `break` is dropped."""
        return not self.ended and self.batches() is not None

    @property
    def source(self) -> str:
        """Its name in the journal: ordinals, and in which batch of a loop around it that was."""
        own = str(self.ordinal)
        if self.around is None or self.around.beside:
            return own
        around = self.around.batches()
        place = "" if around is None else f"[{around.pass_index}.{around.batches_taken}]"
        return f"{self.around.source}{place}/{own}"

    def surroundings(self) -> "Iterator[Loop]":
        """The loops around it, innermost first."""
        if self.around is not None:
            yield self.around
            yield from self.around.surroundings()

    def before_next(self) -> Any:
        """Its place before the next fetch."""
        if self.here is None:
            batches = self.batches()
            assert batches is not None
            self.here = batches.position() | {"before": self.passes}
        return self.here


class Loops:
    """The loops of one run of the script."""

    def __init__(self) -> None:
        self._in: list[Loop] = []  # By when they began.
        self._over: list[Loop] = []  # Unless they fetch again.
        self._begun = 0
        self._outermost = Rounds()
        self._moment = 0
        self._fetching: Loop | None = None

    @property
    def fetching(self) -> Loop:
        """The loop that fetches now, or has fetched last."""
        assert self._fetching is not None
        return self._fetching

    @property
    def main(self) -> Loop:
        """See the module's text."""
        for loop in reversed(self._in):
            if not loop.beside and not loop.ended and loop.batches() is not None:
                return loop
        return self._fetching or self._in[-1]

    @property
    def fetches(self) -> int:
        """Of any loop, until now."""
        return self._moment

    @property
    def ordinals(self) -> list[int]:
        """Which loops the script is in."""
        return [loop.ordinal for loop in self._chain()]

    @property
    def member(self) -> list[int]:
        """Path of the loop that fetches, if that is not the main one."""
        return [] if self.fetching is self.main else self.fetching.path

    def generators(self) -> Iterator[Generator]:
        """Those that draw for loops under way: their states go with the places. One that nothing
        was drawn from has none yet."""
        for loop in self._in:
            batches = loop.batches()
            if batches is not None and not loop.ended and loop.fetched_at:
                yield from batches.generators()

    def loading(self) -> Iterator[object]:
        """What makes their batches in this process: datasets, and what puts samples together."""
        for loop in self._in:
            batches = loop.batches()
            if batches is not None and not loop.ended:
                yield from batches.loading()

    def samplers(self) -> Iterator[object]:
        """Their samplers: in which epoch those are, and how often they were gone over, goes with
        the places, and is otherwise where a run stands only until it takes a rank."""
        for loop in self._in:
            batches = loop.batches()
            if batches is not None:
                yield from batches.samplers()

    def is_main_or(self, drawn: Callable[[list[int]], bool]) -> bool:
        """Whether the loop that fetches is the main one, or its path is one that is `drawn`."""
        return self.fetching is self.main or drawn(self.fetching.path)

    @property
    def begun(self) -> int:
        """How many have begun, of all."""
        return self._begun

    def length(self, calls: int) -> int:
        """How many steps the loops will make that the script is in, if none is left early; 0: not
        known, as where one pass may be followed by another. calls: steps made so far."""
        of = [loop.batches() for loop in self._chain()] if self._in else []
        rounds = [None if batches is None else batches.rounds for batches in of]
        if not of or None in rounds or (of[0] is not None and not of[0].is_all):
            return 0
        drawn = 0 if of[-1] is None else of[-1].drawn
        return math.prod(filter(None, rounds)) // max(1, drawn // max(1, calls))

    def begin(self, batches: Batches) -> None:
        """A loop begins inside of those that have fetched and have not ended."""
        self._over += [loop for loop in self._in if not loop.open]
        self._in = [loop for loop in self._in if loop.open]
        self._over = [loop for loop in self._over if self._may_go_on(loop)]
        if (before := self._goes_on_from(batches)) is not None:
            self._begin_anew(before, batches)
            return
        bodies = (loop for loop in reversed(self._in) if loop.fetched_at and not loop.beside)
        around = next(bodies, None)
        among = self._outermost if around is None else around.inside
        number, ordinal = self._begun, among.begin()
        loop = Loop(
            weakref.ref(batches), batches.over, ordinal, around, number, self._moment, among
        )
        self._in.append(loop)
        self._begun += 1

    def _goes_on_from(self, batches: Batches) -> Loop | None:
        """A loop over the same loader that is at its end, beside one that is not: the script begins
        it anew where others go on, `except StopIteration: its[k] = iter(job.batches(loaders[k]))`.
        """
        known = sorted([*self._in, *self._over], key=lambda one: one.number, reverse=True)
        over = (one for one in known if one.ended and one.over is batches.over)
        return next((one for one in over if self._is_beside(one)), None)

    def _may_go_on(self, loop: Loop) -> bool:
        """Whether the script may fetch from it again, or begin it anew."""
        return loop.batches() is not None or (loop.ended and self._is_beside(loop))

    def _is_beside(self, loop: Loop) -> bool:
        return any(_are_beside(loop, other) for other in self._in)

    def _begin_anew(self, before: Loop, batches: Batches) -> None:
        """Whoever takes the rank has the loop before, and stands with that where this one is."""
        passes = before.passes + before.had
        loop = replace(before, batches=weakref.ref(batches), inside=Rounds(), passes=passes)
        loop.here, loop.ended = None, False
        known = [one for one in self._in if one is not before]
        self._in = sorted([*known, loop], key=lambda one: one.number)
        self._over = [one for one in self._over if one is not before]

    def enter(self, batches: Batches) -> None:
        """A batch is fetched: loops inside of this one are over."""
        loop = self._loop_of(batches)
        self._moment += 1
        for older in self._in:
            if older.number < loop.number and older.fetched_at > loop.begun_at:
                older.beside = True
        if not loop.beside and self._in[-1] is not loop:
            inner = [one for one in self._in if loop in one.surroundings()]
            self._in = [one for one in self._in if one not in inner]
            self._over += inner
        loop.fetched_at, loop.ended = self._moment, False
        if loop.inside.begun:
            loop.inside = Rounds()
        self._fetching = loop

    def _loop_of(self, batches: Batches) -> Loop:
        for loop in self._in:
            if loop.batches() is batches:
                return loop
        loop = next(one for one in self._over if one.batches() is batches)
        self._take_back(loop)
        return loop

    def take(self, batches: Batches, rng: bytes, calls: Step, at: list[int]) -> Any:
        """The next batch of the loop just entered.

        rng, calls, at: as a loop has them. Raises StopIteration if it gives none: then the loop
        has ended.
        """
        loop = self.fetching
        loop.position, loop.rng, loop.calls, loop.at = loop.before_next(), rng, calls, at
        loop.here = None
        try:
            batch = next(batches)
        except StopIteration:
            loop.ended = True
            loop.had = max(1, batches.pass_index)
            raise
        loop.among.had_one(loop.ordinal)
        return batch

    def draw(self, batches: Batches, batch: Any) -> Draw:
        """What the loop that fetches has just taken."""
        return Draw(
            source=self.fetching.source,
            data_pass=self.fetching.passes + batches.pass_index,
            ids=batches.sample_ids(batch),
        )

    def positions(self, calls: Step, at: list[int]) -> list[list[Any]]:
        """Of the main loop and those around it: ordinal; position, RNG and steps just before the
        last fetch; rounds of the loops that it came after; instructions of the last fetch.

        The main one is about to fetch, after `calls` steps, `at` these; its RNG is kept beside.
        """
        *outer, main = self._chain()
        main.here = None
        places = [
            [one.ordinal, one.position, one.rng, one.calls, one.among.before(one.ordinal), one.at]
            for one in outer
        ]
        before = main.among.before(main.ordinal)
        place = main.before_next()
        if outer and (around := [*_since(outer)]):
            place = place | {"around": around}
        return [*places, [main.ordinal, place, b"", calls, before, at]]

    def beside(self) -> list[list[Any]]:
        """Of all others that are drawn from: path, and the place before the next fetch."""
        if self._in == [self._fetching]:  # It is the main one.
            return []
        chain = self._chain()
        others = [one for one in self._in if one.open and one.fetched_at and one not in chain]
        for loop in others:
            loop.here = None
        return [[loop.path, loop.before_next()] for loop in others]

    def resume(self, position: Any, beside: list[list[Any]], before: list[int]) -> None:
        """Stand with the main loop at this place, and with those beside it at theirs.

        before: rounds of the loops before it
        """
        main = self.main
        _stand(main, position)
        main.among.resume(main.ordinal, before, position["drawn"])
        for path, place in beside:
            loop = next((one for one in self._in if one.path == path and one.open), None)
            if loop is None:
                raise StateMismatch(
                    "The script has not begun a loop over batches that the rank was drawing from.",
                    means="This machine cannot take the rank.",
                    do="Begin all loops that are drawn from side by side before the first step.",
                )
            _stand(loop, place)
        around = {tuple(path): state for path, state in position.get("around", ())}
        for loop in self._chain():
            batches = loop.batches()
            if batches is not None and tuple(loop.path) in around:
                batches.put_since(around[tuple(loop.path)])

    def _chain(self) -> list[Loop]:
        main = self.main
        if main.around is None:
            return [main]
        around = [loop for loop in main.surroundings() if not loop.beside]
        return [*reversed(around), main]

    def _take_back(self, loop: Loop) -> None:
        self._over.remove(loop)
        self._in = sorted([*self._in, loop], key=lambda one: one.number)


def _stand(loop: Loop, position: Any) -> None:
    batches = loop.batches()
    assert batches is not None
    batches.resume(position)
    loop.here, loop.passes = None, position["before"]


def _since(loops: list[Loop]) -> Iterator[list[Any]]:
    """Path of each of whose loader's parts something was made since its last fetch."""
    for loop in loops:
        batches = loop.batches()
        if batches is not None and (state := batches.since):
            yield [loop.path, state]


def _are_beside(one: Loop, other: Loop) -> bool:
    """Whether they are drawn from side by side, and the other goes on."""
    together = _body(other) is _body(one) and (one.beside or other.beside)
    return together and other is not one and other.open and other.fetched_at > one.begun_at


def _body(loop: Loop) -> Loop | None:
    """The loop in whose body it is drawn from: none that is beside."""
    return next((one for one in loop.surroundings() if not one.beside), None)
