# SPDX-License-Identifier: Apache-2.0
"""A fact that counts for nothing changes nothing: one that comes late, twice, or from another.

Late is what was said for an epoch that is over; another is a machine that neither has the rank nor
is to take it. Links that break and members that change bring all three. What has come is
decided on once more as if it were such a one, and the outcome is thrown away.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from trainmover.controller.decide import decide
from trainmover.controller.events import EVENTS, AgentSaid, Tick, WorkerSaid, WorkersSaid
from trainmover.controller.state import Job, Phase
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

EVERY = 3
"""So many decisions there are to one that is asked: each costs up to three more."""
OF_AN_EPOCH = (
    m.AtBoundary, m.Interrupted, m.Loaded, m.Position, m.Prepared, m.Snapped, m.Stands, m.Switched,
    m.Unproven, m.VaultHeld, m.Wrote,
)  # fmt: skip
OF_A_RANK = (
    m.AtBoundary, m.BetweenSteps, m.Finished, m.Fingerprinted, m.Loaded, m.Moves, m.Position,
    m.Prepared, m.Raised, m.Recorded, m.Snapped, m.Stands, m.StepsChanged, m.Switched, m.Unproven,
    m.WentOn, m.Wrote,
)  # fmt: skip
ONCE = (m.Fingerprinted, m.Held, m.Loaded, m.Sign, m.Snapped, m.Warm, m.Wrote)
"""What adds up, or orders something: that it comes once is for the links to see to."""


class Harmless:
    def __init__(self) -> None:
        self.decisions = 0

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        if not isinstance(moment.event, WorkerSaid | WorkersSaid | AgentSaid):
            return
        self.decisions += 1
        running = moment.before.phase is moment.after.phase is Phase.RUNNING
        if self.decisions % EVERY or not running:
            return
        for what, event in _others(moment.before, moment.event):
            _changes_nothing(moment.before, event, what)
        facts = _facts(moment.event)
        if moment.after.change is not None and not any(isinstance(one, ONCE) for one in facts):
            _changes_nothing(moment.after, moment.event, "comes twice")


def _facts(event: WorkerSaid | WorkersSaid | AgentSaid) -> list[Any]:
    return [*event.facts] if isinstance(event, WorkersSaid) else [event.fact]


def _others(job: Job, event: WorkerSaid | WorkersSaid | AgentSaid) -> Iterator[tuple[str, EVENTS]]:
    facts = _facts(event)
    if all(isinstance(one, OF_AN_EPOCH) and not _is_copy(job, one) for one in facts):
        late = [msgspec.structs.replace(one, epoch=one.epoch - 1) for one in facts]
        yield "comes late", _with(event, late)
    if all(isinstance(one, OF_A_RANK) for one in facts):
        for name in job.machines:
            if name != event.machine and not _has(job, name, {one.rank for one in facts}):
                yield "is said by another", msgspec.structs.replace(event, machine=name)
                break


def _with(event: WorkerSaid | WorkersSaid | AgentSaid, facts: list[Any]) -> EVENTS:
    if isinstance(event, WorkersSaid):
        return msgspec.structs.replace(event, facts=facts)
    return msgspec.structs.replace(event, fact=facts[0])


def _is_copy(job: Job, fact: object) -> bool:
    """One copy more of a snapshot counts whenever it comes."""
    return isinstance(fact, m.Snapped) and job.cut is not None and job.cut.step == fact.step


def _has(job: Job, machine: str, ranks: set[int]) -> bool:
    """Whether it has one of them, or is to take one."""
    slots = {rank // job.spec.nproc for rank in ranks}
    takes = {} if job.change is None else job.change.joiners
    return any(job.seats[slot] == machine or takes.get(slot) == machine for slot in slots)  # type: ignore[call-overload]


def _changes_nothing(job: Job, event: EVENTS, what: str) -> None:
    """Nor does it once a tick has shown what the time does that has passed."""
    later, effects = decide(job, event)
    if (later, effects) == (job, ()):
        return
    job, _ = decide(job, Tick(at_us=event.at_us))
    later, effects = decide(job, event)
    if (later, effects) == (job, ()):
        return
    names = [name for name in vars(job) if getattr(job, name) != getattr(later, name)]
    raise Violation(f"{event} {what}, and changes {names}, orders {effects}")
