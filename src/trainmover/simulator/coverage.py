# SPDX-License-Identifier: Apache-2.0
"""Which transitions of `decide` were reached: pairs of what the job does and what it is told.

A state is the job's phase with the change under way, an event its kind, for facts with the kind of
fact.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args

from trainmover.controller.events import EVENTS, AgentSaid, WorkerSaid, WorkersSaid
from trainmover.controller.state import Job, Kind, Phase, Stage
from trainmover.protocol.messages import WORKER_FACTS, Taking, Watched, Weighed
from trainmover.simulator.happenings import Decided
from trainmover.simulator.possible import why_not

if TYPE_CHECKING:
    from trainmover.simulator.world import World

Pair = tuple[str, str]
_AWAY = (Taking, Weighed, Watched)
"""Facts that no event is made of."""
_FRESH = ("gathering", "starting")
"""States of a job that begins, or of one that starts again from nothing."""


class Coverage:
    """A checker that finds everything right, and counts. One for any number of worlds."""

    def __init__(self) -> None:
        self.pairs: dict[Pair, int] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        pair = state_of(moment.before), event_of(moment.event)
        if moment.before.restarts and pair[0] in _FRESH and why_not(*pair):
            return  # It was said before all started again, and decides nothing any more.
        self.pairs[pair] = self.pairs.get(pair, 0) + 1

    def not_reached(self) -> list[Pair]:
        """Of all pairs that can be, in order."""
        return [pair for pair in possible_pairs() if pair not in self.pairs]


def state_of(job: Job) -> str:
    """As `all_states` names it.

    >>> from trainmover.protocol.messages import JobSpec
    >>> state_of(Job(JobSpec(run_id="r", argv=["x"])))
    'gathering'
    """
    change = job.change
    if change is None:
        return "saving" if job.saves_last else job.phase.value
    if change.kind is Kind.MOVE:
        return f"move {change.stage.value}"
    if change.back:
        return f"going back {change.stage.value}"
    return f"recovery {'waiting' if change.missing else change.stage.value}"


def event_of(event: EVENTS) -> str:
    """Its kind, or the kind of fact it brings."""
    match event:
        case WorkerSaid() | AgentSaid():
            return type(event.fact).__name__
        case WorkersSaid():
            return type(event.facts[0]).__name__
        case _:
            return type(event).__name__


def all_states() -> Iterator[str]:
    """In which something can be decided."""
    yield from (phase.value for phase in Phase if phase is not Phase.ENDED)
    yield "saving"
    moves, recoveries = list(Stage)[:3], list(Stage)[3:5]
    yield from (f"move {stage.value}" for stage in (*moves, Stage.SWITCH))
    yield "recovery waiting"
    yield from (f"recovery {stage.value}" for stage in (*recoveries, Stage.SWITCH))
    yield from (f"going back {stage.value}" for stage in (Stage.BOUNDARY, Stage.SWITCH))


def all_events() -> Iterator[str]:
    """Kinds of events, and of facts in them."""
    facts = [fact for fact in get_args(WORKER_FACTS) if fact not in _AWAY]
    told = get_args(AgentSaid.__annotations__["fact"])
    plain = (kind for kind in get_args(EVENTS) if kind not in (WorkerSaid, WorkersSaid, AgentSaid))
    yield from (kind.__name__ for kind in (*plain, *told, *facts))


def all_pairs() -> Iterator[Pair]:
    """Every state with every event."""
    events = list(all_events())
    return ((state, event) for state in all_states() for event in events)


def possible_pairs() -> Iterator[Pair]:
    """Those that can be."""
    return (pair for pair in all_pairs() if not why_not(*pair))
