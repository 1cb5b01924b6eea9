"""Whatever is said at whatever moment, `decide` has an answer.

A peer that is late, doubled or simply wrong says things that no world of ours brings about in that
state. The event is in the journal by then: an error would fail every controller that comes. So
events of many worlds are put to jobs of many others.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from directing import busy

from trainmover.controller.decide import decide
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    AnomalyFound,
    CordonRequested,
    DrainRequested,
    HealthRequested,
    MachineJoined,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    SlowFound,
    SlowMeasured,
    SlowSuspected,
    StepsUnequal,
    StopRequested,
    UncordonRequested,
    WorkerSaid,
)
from trainmover.controller.state import Job
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.coverage import all_events, all_states, event_of, state_of
from trainmover.simulator.faults import only
from trainmover.simulator.happenings import Decided
from trainmover.simulator.story import Plan, plan_of, play
from trainmover.simulator.world import World

RARE: list[EVENTS] = [
    StopRequested(at_us=0, code=1, why="enough"),
    CordonRequested(at_us=0, request="c1", machine="m1", reason="its fan"),
    UncordonRequested(at_us=0, request="u1", machine="m1"),
    HealthRequested(at_us=0, request="h1", machine="m1"),
    HealthRequested(at_us=0, request="h2", machine="m9"),
    DrainRequested(at_us=0, request="d1", machines=["m1", "m2"]),
    DrainRequested(at_us=0, request="d2", machines=["m1", "m9"]),
    RollRequested(at_us=0, request="r1"),
    RollRequested(at_us=0, request="r2", machines=["m1", "m9"], at_once=2, hold=True),
    PlaceRequested(at_us=0, request="p1", seats=["m2", "m1", "m3", "m4"]),
    PlaceRequested(at_us=0, request="p2", seats=["m2"]),
    PlanSteered(at_us=0, request="s1", going=True),
    PlanSteered(at_us=0, request="s2", going=False),
    SlowSuspected(at_us=0, epoch=Epoch(1), machine=MachineId("m1"), step=Step(9)),
    SlowFound(
        at_us=0,
        epoch=Epoch(1),
        machine=MachineId("m1"),
        kind="machine",
        ranks=[Rank(0)],
        step=Step(9),
        steps=7,
        own_ms=120.0,
        usual_ms=100.0,
    ),
    SlowMeasured(at_us=0, epoch=Epoch(1), incident=1, own_ms=100.0, usual_ms=100.0, steps=8),
    StepsUnequal(at_us=0, rank=Rank(0), step=Step(9), text="1.0, 2.0", count=2),
    AgentSaid(at_us=0, machine=MachineId("m1"), fact=m.Leaving(left_ms=900), number=1),
    *(
        AgentSaid(at_us=0, machine=MachineId("m1"), fact=m.Sign(symptom=name, line="x"), number=1)
        for name in ("gpu", "corrected", "of another version")
    ),
    *(
        AnomalyFound(at_us=0, machine=MachineId(name), sign="late", text="it is", grave=grave)
        for name, grave in (("m1", True), ("m1", False), ("m9", True))
    ),
    AgentSaid(
        at_us=0,
        machine=MachineId("m1"),
        fact=m.Examined(number=1, figures={"disk_mb_s": 3.0}),
        number=1,
    ),
    *(
        WorkerSaid(at_us=0, machine=MachineId("m1"), local_rank=0, fact=fact, number=1)
        for fact in (
            m.Warned(rank=Rank(0), text="look at this"),
            m.WentOn(rank=Rank(0), step=Step(3)),
            m.Raised(rank=Rank(0), step=Step(3), error="KeyError", traceback=""),
            m.BetweenSteps(rank=Rank(0), step=Step(3), where="train.py line 8"),
            m.Unproven(rank=Rank(0), epoch=Epoch(2), holders={Rank(1): "d"}),
            m.Unproven(rank=Rank(0), epoch=Epoch(2), lacks="what a step left"),
        )
    ),
]
"""Of kinds that no fault brings about."""
EACH = 10
"""Jobs of each state, and events of each kind, by chance."""


def _plans() -> Iterator[Plan]:
    for seed in range(60):
        yield plan_of(seed, seconds=5)
    for seed in range(8):
        yield plan_of(seed, seconds=5, faults=only(["partition"]))
    for seed in range(2):
        yield plan_of(seed, seconds=5, faults=only(["recompile", "notice"]))
    for seed in range(4):
        plan = plan_of(seed, seconds=5)
        plan.world |= {"engine": 0.3, "wait_s": 10**6}
        yield plan
    for seed in range(8):
        saves = plan_of(seed, standbys=0, seconds=5, faults=only(["death"]))
        saves.world |= {"no_standby": "checkpoint", "wait_s": 0, "checkpoints": 4, "snapshots": 3}
        yield saves


class Met:
    """A checker that finds everything right, and remembers. One for all worlds."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[Job]] = defaultdict(list)
        self.events: dict[str, list[EVENTS]] = defaultdict(list)
        self._random = random.Random(0)

    def heeds(self, world: World) -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        self._remember(self.jobs[state_of(moment.before)], moment.before)
        self._remember(self.events[event_of(moment.event)], moment.event)

    def _remember(self, known: list[Any], one: Any) -> None:
        if len(known) < EACH:
            known.append(one)
        elif self._random.random() < 0.1:
            known[self._random.randrange(EACH)] = one


@pytest.mark.turns(12)
def test_there_is_an_answer_to_every_event_in_every_state() -> None:
    met = Met()
    for plan in _plans():
        play(busy(plan), met)
    assert met.jobs.keys() >= set(all_states())
    events = [*RARE, *(event for its in met.events.values() for event in its)]
    assert set(map(event_of, events)) >= set(all_events())
    late_us = 100_000_000 + max(event.at_us for event in events)
    for job in (job for its in met.jobs.values() for job in its):
        for event in events:
            if _is_let_in(event, job):
                decide(job, msgspec.structs.replace(event, at_us=late_us))


def _is_let_in(event: EVENTS, job: Job) -> bool:
    """As `server.hearing` and `server.reception` have it."""
    if isinstance(event, MachineJoined):
        return event.machine not in job.machines
    said = event.fact if isinstance(event, AgentSaid) else event
    return bool(getattr(said, "local_rank", 0) < job.spec.nproc)
