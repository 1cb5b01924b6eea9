"""Where two machines wait for each other the network between them is slow, and not otherwise."""

import random
from collections.abc import Callable, Mapping

import pytest
from paces import jitter, job_of

from trainmover.controller import Job, decide
from trainmover.controller.events import SlowFound, SlowMeasured
from trainmover.controller.policies.stragglers.known import Effect
from trainmover.controller.policies.stragglers.pace import MEASURED, Pace
from trainmover.controller.policies.stragglers.ways import PENDING_MAX, Pending, Ways
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.server.view.causes import cause_of

Waits = Callable[[int, int], Mapping[int, float]]
"""Rank, step -> for whom it waits how many milliseconds."""


class Waiting:
    """A job of four machines whose ranks tell of their waits."""

    def __init__(self, job: Job, seed: int = 1) -> None:
        self.job, self.step, self.pace = job, 1, Pace()
        self.events: list[SlowFound | SlowMeasured] = []
        self._jitter = jitter(seed)

    def steps(self, count: int, waits: Waits, own: Callable[[int], float] = lambda rank: 100):
        for _ in range(count):
            self.step += 1
            for rank in range(self.job.spec.world_size):
                for_whom = {
                    Rank(other): round(ms * 1000 * self._jitter())
                    for other, ms in waits(rank, self.step).items()
                }
                own_us = round(own(rank) * 1000 * self._jitter())
                took = m.Took(step=self.step, own_us=own_us, cpu_us=80_000, waits_us=for_whom)
                at_us, epoch = self.step * 100_000, self.job.epoch
                for event in self.pace.take(self.job, epoch, [(Rank(rank), took)], at_us):
                    self.events.append(event)
                    self.job, _ = decide(self.job, event)
        return self

    @property
    def found(self) -> list[SlowFound]:
        return [one for one in self.events if isinstance(one, SlowFound)]


def usual(rank: int, step: int) -> dict[int, float]:
    """All wait for whoever comes last in this step."""
    last = step * 7 % 4
    return {last: 3.0} if rank != last else {(last + 1) % 4: 0.5}


def slow_between(one: int, other: int, by: float = 30.0) -> Waits:
    """Each waits for the other, and the rest for either, as in a small group."""

    def waits(rank: int, step: int) -> dict[int, float]:
        if rank in (one, other):
            return {**usual(rank, step), (other if rank == one else one): by}
        return {**usual(rank, step), one: by}

    return waits


def test_two_that_wait_for_each_other_have_a_slow_way_between_them() -> None:
    told = Waiting(job_of("watch")).steps(75, usual).steps(20, slow_between(1, 2))
    (found,) = told.found
    assert (found.kind, found.machine, found.peer) == ("network", "m2", "m3")
    assert found.steps <= 10
    assert 25 < found.own_ms - found.usual_ms < 35
    assert "--stragglers act would" in told.job.stragglers.findings[-1].done


def test_of_a_machine_with_several_slow_ways_it_is_that_machine() -> None:
    def waits(rank: int, step: int) -> dict[int, float]:
        return {1: 30.0} if rank != 1 else {0: 30.0, 2: 30.0, 3: 30.0}

    told = Waiting(job_of("watch")).steps(75, usual).steps(20, waits)
    assert {(one.kind, one.machine) for one in told.found} == {("network", "m2")}


def test_who_is_late_itself_is_waited_for_and_is_no_network() -> None:
    def waits(rank: int, step: int) -> dict[int, float]:
        return {} if rank == 2 else {2: 30.0}

    told = (
        Waiting(job_of("watch")).steps(75, usual).steps(40, waits, lambda r: 130 if r == 2 else 100)
    )
    assert {(one.kind, one.machine) for one in told.found} == {("machine", "m3")}


def test_neighbours_of_a_pipeline_wait_for_each_other_as_they_always_did() -> None:
    def waits(rank: int, step: int) -> dict[int, float]:
        return {other: 40.0 for other in (rank - 1, rank + 1) if 0 <= other < 4}

    assert Waiting(job_of("act")).steps(400, waits).found == []


def test_ranks_that_wait_for_each_other_now_and_then_do_so_by_chance() -> None:
    chance = random.Random(3)

    def waits(rank: int, step: int) -> dict[int, float]:
        return {other: 60 * chance.random() for other in range(4) if chance.random() < 0.3}

    assert Waiting(job_of("act")).steps(600, waits).found == []


def test_short_waits_are_no_matter_however_often_they_come() -> None:
    told = Waiting(job_of("act")).steps(75, usual).steps(300, slow_between(1, 2, by=8.0))
    assert told.found == []


def seated_elsewhere(told: Waiting) -> None:
    """The move has come through, and its first step is committed."""
    from test_drain import done

    told.job = done(told.job)


@pytest.mark.parametrize("helps", [True, False])
def test_one_end_is_moved_and_it_is_measured_whether_that_has_helped(helps: bool) -> None:
    told = Waiting(job_of("act")).steps(75, usual).steps(20, slow_between(1, 2))
    assert told.job.change is not None
    assert told.job.change.leavers == {1: "m2"}
    assert "the way between m2 and m3 is slow" in told.job.incidents[-1].cause
    assert cause_of(told.job.incidents[-1]) == "slow machine"
    seated_elsewhere(told)
    told.steps(MEASURED + 8, usual if helps else slow_between(1, 2))
    (move,) = told.job.stragglers.moves
    assert move.effect is (Effect.HELPED if helps else Effect.VAIN)
    assert ("m2" in told.job.cordoned) is helps


def test_if_that_was_in_vain_it_is_the_other_end() -> None:
    told = Waiting(job_of("act", standbys=2)).steps(75, usual).steps(20, slow_between(1, 2))
    seated_elsewhere(told)
    told.steps(400, slow_between(1, 2))
    assert told.job.change is not None
    assert told.job.change.leavers == {2: "m3"}


def test_a_rank_that_is_none_is_not_looked_at() -> None:
    told = (
        Waiting(job_of("act")).steps(75, usual).steps(20, lambda rank, step: {99: 50.0, rank: 9.0})
    )
    assert told.found == []


def test_what_a_machine_waits_for_is_by_its_own_ways() -> None:
    """Two others have a slow way between them; that says nothing of it."""
    machine_of = {Rank(rank): MachineId(f"m{rank + 1}") for rank in range(4)}
    ways = Ways()
    for step in range(80):
        for rank in machine_of:
            waits = {Rank(3 if rank == 2 else 2): 30_000} if rank in (2, 3) else {}
            waits |= {Rank(1 - rank): 2_000} if rank in (0, 1) else {}
            took = m.Took(step=step, own_us=100_000, cpu_us=80_000, waits_us=waits)
            ways.add(rank, took, machine_of)
    assert ways.of(MachineId("m1"), 8) == (102_000, 100_000)
    assert ways.of(MachineId("m3"), 8) == (130_000, 100_000)
    ways.follow(["m1", "m2", "m4"])
    assert ways.of(MachineId("m4"), 8) == (100_000, 100_000), "that way has gone with m3"


def test_who_waits_alone_has_no_slow_way() -> None:
    """One waits for the other, which waits for nobody: that one is late."""
    machine_of = {Rank(rank): MachineId(f"m{rank + 1}") for rank in range(2)}
    ways = Ways()
    for step in range(80):
        for rank in machine_of:
            waits = {Rank(1): 30_000} if rank == 0 else {Rank(0): 0}
            took = m.Took(step=step, own_us=100_000, cpu_us=80_000, waits_us=waits)
            ways.add(rank, took, machine_of)
    assert ways.of(MachineId("m1"), 8) == (100_000, 100_000)


@pytest.mark.parametrize(("begun", "is_known"), [(PENDING_MAX, True), (PENDING_MAX + 1, False)])
def test_the_oldest_step_is_forgotten_once_too_many_wait_for_a_rank(
    begun: int, is_known: bool
) -> None:
    pending, steps = Pending(), [m.Took(step=n, own_us=1, cpu_us=1) for n in range(begun)]
    for took in steps:
        pending.add(Rank(0), took, 2)
    assert (pending.add(Rank(1), steps[0], 2) is not None) is is_known
