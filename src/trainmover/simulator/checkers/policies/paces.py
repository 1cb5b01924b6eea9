# SPDX-License-Identifier: Apache-2.0
"""What a finding says of steps is what ranks have told of them.

Its own time lies between the least and the most that one of its ranks has told of the steps that it
names, the usual one between those of all others; what it shows are times that were told, as many as
it says. What a move has come to is measured by steps that were made since.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from trainmover.controller.events import SlowFound, SlowMeasured
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Columns
from trainmover.simulator.happenings import Decided, Replayed, Told, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

KEPT, SHOWN, MEASURED = 300, 24, 8
MORE = 8
"""Steps that not all ranks have told, in epochs that were cut short, count for nobody."""
LITTLE_MS = 0.002


class Paces:
    """own: of each rank, what it has told of its steps, in milliseconds, the newest last."""

    def __init__(self) -> None:
        self._forget()

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        if world.knobs.stragglers == "off":
            return {}
        return {Told: self.told, Decided: self.decided, Replayed: self.replayed}

    def _forget(self) -> None:
        self.own: dict[Rank, deque[tuple[Step, float]]] = defaultdict(lambda: deque(maxlen=KEPT))

    def replayed(self, _: Replayed) -> None:
        self._forget()

    def told(self, moment: Told) -> None:
        if isinstance(moment.fact, Columns):
            for rank, took in moment.fact.each_took():
                self.own[rank].append((took.step, round(took.own_us / 1000, 3)))

    def decided(self, moment: Decided) -> None:
        if moment.event in self.world.imagined:
            return
        match moment.event:
            case SlowFound() as event if event.peer is None:
                self._is_so(event)
            case SlowMeasured() as event:
                self._was_made_since(event)

    def _lately(self, rank: Rank, count: int) -> list[float]:
        return [ms for _, ms in islice(reversed(self.own[rank]), count)]

    def _is_so(self, event: SlowFound) -> None:
        if not event.ranks or event.steps < 1:
            raise Violation(f"{event} is of no rank, or of no step")
        newest = [self.own[rank][-1][0] for rank in event.ranks if self.own[rank]]
        if newest and event.step > max(newest):
            raise Violation(f"{event} is of a step that nobody has told, after {newest}")
        count = event.steps + MORE
        mine = [self._lately(rank, count) for rank in event.ranks]
        if not any(_is_between(event.own_ms, some) for some in mine):
            raise Violation(f"{event}; its ranks have told {mine}")
        if event.own_ms <= event.usual_ms:
            raise Violation(f"{event} takes no longer than is usual")
        if event.machine is None:
            return
        others = [ms for rank in self.own for ms in self._lately(rank, count)]
        if not _is_between(event.usual_ms, others):
            raise Violation(f"{event}; all ranks have told {sorted(others)}")
        if len(event.since) != min(event.steps, SHOWN) or len(event.before) > SHOWN:
            raise Violation(f"{event} shows {len(event.before)} and {len(event.since)} steps")
        known = {ms for rank in event.ranks for _, ms in self.own[rank]}
        if strange := {*event.since, *event.before} - known:
            raise Violation(f"{event} shows {sorted(strange)}, which nobody has told")

    def _was_made_since(self, event: SlowMeasured) -> None:
        if event.steps != MEASURED or event.own_ms <= 0 or event.usual_ms <= 0:
            raise Violation(f"{event} is of no time, or of other steps than are measured")


def _is_between(ms: float, some: Iterable[float]) -> bool:
    known = list(some)
    return bool(known) and min(known) - LITTLE_MS <= ms <= max(known) + LITTLE_MS
