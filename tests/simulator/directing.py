"""Worlds in which one event comes to the controller while the job is in one state.

What comes from outside happens at the moment at which the job is in that state. What a machine says
is held on its way from when it is said: its link to the controller stands still, as in a network
that is slow, until the job is in that state or for as long as a machine may be silent. So nothing
comes out of its turn, and nothing is said that nobody would say.
"""

import random
from collections.abc import Callable
from typing import Any

from trainmover.controller.events import (
    AnomalyFound,
    CordonRequested,
    DrainRequested,
    HealthRequested,
    KillRequested,
    MoveRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    StepsUnequal,
    StopRequested,
    Tick,
    UncordonRequested,
)
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.chance import Chance
from trainmover.simulator.coverage import Coverage, Pair, event_of, state_of
from trainmover.simulator.faults import SECOND, Faults, only
from trainmover.simulator.happenings import Decided, Said
from trainmover.simulator.places.network import CONTROLLER
from trainmover.simulator.ranks.workers import Worker
from trainmover.simulator.story import Plan, plan_of, play
from trainmover.simulator.world import World

REQUESTS_OF_ONE = (
    MoveRequested | KillRequested | CordonRequested | UncordonRequested | HealthRequested
)
HOLD_US = (300_000, 900_000)
LEADS_TO = {
    "move": ["move"],
    "recovery": ["crash", "death"],
    "going back": ["death"],
    "saving": ["death"],
}
"""What lets a job come into such states."""


class Director:
    """A checker that finds everything right, and brings the event."""

    def __init__(self, state: str, event: str, seed: int) -> None:
        self.state, self.event = state, event
        self.random = random.Random(f"{state} {event} {seed}")
        self.reached = False
        self.held: MachineId | None = None
        self._begun = False
        self._acted_us = 0

    def heeds(self, world: World) -> dict[type, Callable[[Any], None]]:
        self.world = world
        self.chance = Chance(world, only([]))
        return {Decided: self.decided, Said: self.said}

    def said(self, moment: Said) -> None:
        """Somebody says what is to come late."""
        if type(moment.fact).__name__ != self.event or self.reached or self.held is not None:
            return
        world = self.world
        if self.random.random() < 0.3 or world.host is None or state_of(world.job) == self.state:
            return
        self.held = moment.machine
        world.network.cut(self.held, CONTROLLER)
        world.at(self.random.choice(HOLD_US), self._give)
        world.at(int(self.random.random() ** 2 * 60_000) + 1, self._lead)

    def decided(self, moment: Decided) -> None:
        self.reached |= (state_of(moment.before), event_of(moment.event)) == (
            self.state,
            self.event,
        )
        if not self._begun and moment.after.all_recorded:
            self._begun = True
            self.world.at(100_000, self._push)
        if moment.after.code is None and state_of(moment.after) == self.state and not self.reached:
            self.world.at(0, self._give)
            if self.event in ACTS and self.world.now - self._acted_us > 20_000:
                self._acted_us = self.world.now
                self.world.at(0, self._act)

    def _give(self) -> None:
        if self.held is not None:
            self.world.network.mend(self.held, CONTROLLER)
            self.held = None

    def _push(self) -> None:
        """Again and again, where it is not a fact that is waited for."""
        if self.world.ended is None and (self.event in ACTS or self.event.startswith("Checkpoint")):
            self._lead()
            self.world.at(400_000, self._push)

    def _lead(self) -> None:
        for kind, names in LEADS_TO.items():
            if self.state.startswith(kind) and self.world.ended is None:
                self.chance.let(self.random.choice(names))

    def _act(self) -> None:
        world = self.world
        here = world.host is not None and world.ended is None and state_of(world.job) == self.state
        if here:
            ACTS[self.event](self)

    def worker(self, *, live: bool = False) -> Worker | None:
        """Any process, or one whose script runs as a rank."""
        some = [w for w in self.world.workers() if not w.stopped]
        some = [w for w in some if w.live and not w.finished] if live else some
        return self.random.choice(some) if some else None


def _lose_a_link(director: Director) -> None:
    some = [box for box in director.world.boxes.values() if box.link is not None and box.is_in]
    if some:
        link = director.random.choice(some).link
        assert link is not None
        link.reset()


def _ask(kind: type[REQUESTS_OF_ONE]) -> Callable[[Director], None]:
    def ask(director: Director) -> None:
        world = director.world
        assert world.host is not None
        world.requests += 1
        machine = director.random.choice(world.job.seats or tuple(world.boxes))
        world.host.request(
            kind(at_us=world.host.now, request=f"d{world.requests}", machine=machine)
        )

    return ask


def _drain(director: Director) -> None:
    world = director.world
    assert world.host is not None
    world.requests += 1
    machines = [*world.job.seats[:2]] or ["m1"]
    event = DrainRequested(at_us=world.now, request=f"d{world.requests}", machines=machines)
    world.host.request(event)


def _roll(director: Director) -> None:
    world = director.world
    assert world.host is not None
    world.requests += 1
    world.host.request(RollRequested(at_us=world.now, request=f"d{world.requests}"))


def _place(director: Director) -> None:
    world = director.world
    assert world.host is not None
    world.requests += 1
    seats = [*reversed(world.job.seats)]
    world.host.request(PlaceRequested(at_us=world.now, request=f"d{world.requests}", seats=seats))


def _steer(director: Director) -> None:
    world = director.world
    assert world.host is not None
    world.requests += 1
    going = director.random.random() < 0.5
    world.host.request(PlanSteered(at_us=world.now, request=f"d{world.requests}", going=going))


def _stop(director: Director) -> None:
    world = director.world
    assert world.host is not None
    until_us = world.host.now + director.random.choice((0, 10 * SECOND))
    world.host.request(
        StopRequested(at_us=world.host.now, code=130, why="enough", until_us=until_us)
    )


def _tick(director: Director) -> None:
    assert director.world.host is not None
    director.world.host.request(Tick(at_us=director.world.host.now))


def _say_that_it_leaves(director: Director) -> None:
    some = [box for box in director.world.boxes.values() if box.link is not None and box.is_in]
    if some:
        director.random.choice(some).say(m.Leaving(left_ms=5_000))


def _say_that_it_fails(director: Director) -> None:
    some = [box for box in director.world.boxes.values() if box.link is not None and box.is_in]
    if some:
        sign = m.Sign(symptom="corrected", line="EDAC MC0: 1 CE", count=12)
        director.random.choice(some).say(sign)


def _find_one_odd(director: Director) -> None:
    host = director.world.host
    machine = director.random.choice(sorted(host.job.machines) or ["m1"])
    found = AnomalyFound(
        at_us=director.world.now, machine=machine, sign="creeps", text="longer", grave=False
    )
    host.control.take(found)


def _make_one_unequal(director: Director) -> None:
    at_us = director.world.now
    other = StepsUnequal(at_us=at_us, rank=Rank(0), step=Step(1), text="1.0, 2.0", count=1)
    director.world.host.control.take(other)


def _have_one_examined(director: Director) -> None:
    """What it says is held on its way until the job is in that state."""
    spare = [name for name in director.world.job.machines if name not in director.world.job.seats]
    assert director.world.host is not None
    director.world.requests += 1
    request = f"d{director.world.requests}"
    machine = director.random.choice(spare or ["m1"])
    director.world.host.request(
        HealthRequested(at_us=director.world.now, request=request, machine=machine)
    )


def _let_a_process_end(director: Director) -> None:
    if (worker := director.worker()) is not None:
        worker.box.exited(worker, -9)


def _let_a_process_stop(director: Director) -> None:
    if (worker := director.worker()) is not None:
        worker.stopped = True
        worker.box.process_state(worker, "stopped", 0)


def _say(make: Callable[[Worker], m.WorkerFact]) -> Callable[[Director], None]:
    def say(director: Director) -> None:
        if (worker := director.worker(live=True)) is not None:
            worker.say(make(worker))

    return say


def _go_on(director: Director) -> None:
    worker = director.worker(live=True)
    if worker is not None and director.world.job.finished:
        worker.say(m.WentOn(rank=worker.rank, step=Step(worker.step + 1)))


ACTS: dict[str, Callable[[Director], None]] = {
    "MachineJoined": lambda director: director.world.add(standby=True) and None,
    "MachinesLost": _lose_a_link,
    "MoveRequested": _ask(MoveRequested),
    "KillRequested": _ask(KillRequested),
    "CordonRequested": _ask(CordonRequested),
    "UncordonRequested": _ask(UncordonRequested),
    "HealthRequested": _ask(HealthRequested),
    "DrainRequested": _drain,
    "RollRequested": _roll,
    "PlaceRequested": _place,
    "PlanSteered": _steer,
    "StopRequested": _stop,
    "Tick": _tick,
    "ControllerReturned": lambda director: director.world.lose_controller(1000),
    "StoreMoved": lambda director: director.world.lose_store(at_once=True),
    "WorkerExited": _let_a_process_end,
    "Leaving": _say_that_it_leaves,
    "Sign": _say_that_it_fails,
    "AnomalyFound": _find_one_odd,
    "StepsUnequal": _make_one_unequal,
    "Examined": _have_one_examined,
    "WorkerState": _let_a_process_stop,
    "Warned": _say(lambda worker: m.Warned(rank=worker.rank, text="look at this")),
    "Raised": _say(
        lambda w: m.Raised(rank=w.rank, step=Step(w.step + 1), error="KeyError", traceback="")
    ),
    "WentOn": _go_on,
}


def direct(state: str, event: str, seed: int, coverage: Coverage) -> bool:
    """Whether the event came while the job was in that state, in this world."""
    director = Director(state, event, seed)
    play(_plan(state, event, seed), director, coverage)
    return director.reached


def _plan(state: str, event: str, seed: int) -> Plan:
    chance = random.Random(f"direct {seed}")
    plan = busy(plan_of(seed, seconds=3))
    plan.faults = Faults(plan.faults.weights, pause_us=300_000, together=0.4)
    plan.early = state in ("gathering", "starting") or chance.random() < 0.2
    if state.startswith("going back"):
        plan.world |= {"alone": True, "snapshots": chance.choice((2, 3))}
    if state == "ending" or event in ("WentOn", "Finished"):
        plan.late, plan.seconds = True, 1
    if state == "recovery waiting":
        plan.standbys = chance.choice((0, 0, 1))
    if state == "saving":
        plan.standbys, plan.faults = 0, only(["death", "move", "drill"])
        plan.world |= {"no_standby": "checkpoint", "wait_s": 0, "checkpoints": 10, "snapshots": 3}
        plan.world |= {"disk_us": (100_000, 2_000_000)}
    elif event.startswith("Checkpoint"):
        plan.world |= {"checkpoints": 4, "disk_us": (1_000, 900_000)}
    if event == "Reached":
        plan.faults, plan.seconds = only(["partition"]), 30
    plan.world["health"] = "watch" if event == "Examined" else "off"
    if event == "BetweenSteps":
        plan.faults = only(["between", "crash", "death", "move"])
    if event == "Stack":
        plan.faults = only(["stuck", "stop", "crash", "move"])
    return plan


def reach(pair: Pair, coverage: Coverage, *, tries: int) -> bool:
    """Whether one of so many worlds has it."""
    return any(direct(*pair, seed, coverage) for seed in range(tries))


def busy(plan: Plan) -> Plan:
    """The same, where ranks tell of snapshots, checkpoints and rounds as often as they can."""
    often = {"snapshots": 2, "checkpoints": 4, "rounds": 2}
    plan.world.update({name: every for name, every in often.items() if plan.world[name]})
    return plan
