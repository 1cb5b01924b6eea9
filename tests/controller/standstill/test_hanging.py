"""A rank stands still: who is ended for it, what follows, and when nothing does."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.controller.jobs import (
    BEGUN,
    BOUNDARY,
    DRAINS,
    GATHERING,
    MOVE_BINDS,
    RECOVERED,
    RECOVERY_SWITCHES,
    RUNNING,
    after,
    at_boundary,
    committed,
    ended,
    exited,
    finished,
    kinds,
    orders,
    parked,
    position,
    running,
    said,
    up,
)
from trainmover.controller import Job, decide
from trainmover.controller.change.seats import with_machine
from trainmover.controller.clock import tick_due
from trainmover.controller.effects import Effect, Fence
from trainmover.controller.events import AgentSaid, Tick, WorkerSaid
from trainmover.controller.standstill.hanging import BEFORE_US
from trainmover.controller.state import MachineState, Outcome, Phase
from trainmover.protocol import messages as m

S = 1_000_000
ALL = (("m1", 0), ("m2", 1), ("m3", 2))


def stands(
    machine: str, rank: int, where: str = "call", *, epoch: int = 1, calls: int = 5, at_us: int = S,
    still_ms: int = 700, step: int = 8,
) -> WorkerSaid:  # fmt: skip
    fact = m.Stands(
        rank=rank, epoch=epoch, step=step, where=where, counts={"private/gate": calls},
        call="the gate" if where == "call" else "", place="train.py line 33",
        still_ms=still_ms, deadline_ms=600,
    )  # fmt: skip
    return said(machine, fact, at_us=at_us)


def state(machine: str, state: str, *, at_us: int = S, since_ms: int = 0) -> AgentSaid:
    fact = m.WorkerState(local_rank=0, pid=1, state=state, since_ms=since_ms)
    return AgentSaid(at_us=at_us, machine=machine, fact=fact)


def stack(machine: str, text: str = "Thread 0x1\n  File train.py, line 33", pid: int = 1) -> Any:
    return AgentSaid(at_us=2 * S, machine=machine, fact=m.Stack(local_rank=0, pid=pid, text=text))


def wait_for(machine: str, rank: int, *, epoch: int = 1, at_us: int = S) -> list[WorkerSaid]:
    """All but `machine` wait in a call that it has not begun."""
    others = [(name, r) for name, r in ALL if r != rank]
    return [stands(name, r, epoch=epoch, calls=6, at_us=at_us) for name, r in others]


def condemned(effects: tuple[Effect, ...]) -> list[str]:
    return list(orders(effects, m.EndWorker))


def test_a_process_that_is_stopped_before_the_job_begins_is_not_waited_for_for_ever() -> None:
    others = (up(name) for name in ("m1", "m3", "m4"))
    job, _ = after(GATHERING, *others, state("m2", "stopped"))
    assert tick_due(job, S, 2 * S)
    job, effects = after(job, Tick(at_us=S + BEFORE_US - 1))
    assert (job.phase, effects) == (Phase.GATHERING, ())
    job, effects = after(job, Tick(at_us=S + BEFORE_US))
    assert Fence("m2") in effects
    assert (job.phase, job.seats) == (Phase.RUNNING, ("m1", "m3", "m4"))


STUCK = [*wait_for("m2", 1), stands("m2", 1, "script", at_us=S + 5)]


def test_who_keeps_the_others_waiting_is_ended_and_replaced() -> None:
    job, effects = after(RUNNING, *STUCK)
    order = orders(effects, m.EndWorker)["m2"]
    assert (order.local_rank, order.pid) == (0, 1)
    assert "rank 1 on m2 stood still in step 8 for 0.7 s: its script at train.py" in order.why
    assert job.change is None
    job, effects = after(job, stack("m2"), exited("m2", pid=1, at_us=2 * S))
    found = job.incidents[-1]
    assert (found.machine, found.joiner, found.cause) == ("m2", "m4", order.why)
    assert found.marks == {"heard": S + 5 - 700_000, "detect": S + 5}
    assert "line 33" in found.stacks[1]
    assert list(orders(effects, m.Bind)) == ["m4"]
    assert job.hanging.condemned == {}


def test_it_is_told_once_however_often_the_others_speak() -> None:
    job, _ = after(RUNNING, *STUCK)
    assert after(job, *STUCK, Tick(at_us=2 * S))[1] == ()


def test_a_rank_that_still_moves_is_left_alone() -> None:
    assert condemned(after(RUNNING, *wait_for("m2", 1), Tick(at_us=9 * S))[1]) == []


def test_a_rank_that_went_on_is_not_blamed_for_what_was() -> None:
    moves = said("m2", m.Moves(rank=1, epoch=1))
    busy = stands("m2", 1, "script")
    assert condemned(after(RUNNING, busy, moves, *wait_for("m2", 1))[1]) == []


@pytest.mark.parametrize("how", ["stopped", "traced", "blocked", "deaf"])
def test_a_process_that_executes_nothing_is_ended_once_others_wait(how: str) -> None:
    job, effects = after(RUNNING, state("m2", how), *wait_for("m2", 1))
    assert condemned(effects) == ["m2"]
    assert "its process" in job.hanging.condemned["m2"].cause


def test_one_that_runs_again_in_time_is_not() -> None:
    goes_on = state("m2", "", at_us=S + 1)
    assert condemned(after(RUNNING, state("m2", "stopped"), goes_on, *wait_for("m2", 1))[1]) == []


def test_a_stopped_process_is_ended_after_a_second_also_if_nobody_waits() -> None:
    job, _ = after(RUNNING, state("m2", "stopped"))
    assert tick_due(job, S, S + 200_000)
    assert condemned(after(job, Tick(at_us=S + 900_000))[1]) == []
    assert condemned(after(job, Tick(at_us=2 * S))[1]) == ["m2"]


def test_a_deaf_process_that_nobody_waits_for_is_left_alone() -> None:
    job, _ = after(RUNNING, state("m2", "deaf"))
    assert condemned(after(job, Tick(at_us=60 * S))[1]) == []


def test_word_of_another_process_or_epoch_or_rank_counts_nothing() -> None:
    fact = m.WorkerState(local_rank=0, pid=77, state="stopped")
    other = AgentSaid(at_us=S, machine="m2", fact=fact)
    assert condemned(after(RUNNING, other, *wait_for("m2", 1))[1]) == []
    old = [stands(name, r, "call" if r != 1 else "script", epoch=0, calls=9 - r) for name, r in ALL]
    assert condemned(after(RUNNING, *old)[1]) == []
    assert after(RUNNING, stands("m2", 2, "script"))[0] == RUNNING


@pytest.mark.parametrize(
    "job",
    [
        BEGUN,
        replace(RUNNING, spec=msgspec.structs.replace(RUNNING.spec, watch=False)),
        after(RUNNING, finished("m1", 0))[0],
    ],
    ids=["first steps", "no watch", "a script ended"],
)
def test_nothing_is_judged(job: Job) -> None:
    assert condemned(after(job, *STUCK)[1]) == []


def test_the_second_time_within_ten_minutes_the_machine_goes() -> None:
    judged = {"m2": S - 599 * S}
    job = replace(RUNNING, hanging=replace(RUNNING.hanging, judged=judged))
    job, _ = after(job, *STUCK)
    job, effects = after(job, exited("m2", pid=1, at_us=2 * S))
    assert Fence("m2") in effects
    assert "m2" not in job.machines
    assert "m2 is given up" in job.incidents[-1].cause
    assert job.incidents[-1].marks["detect"] == S + 5


def test_after_ten_minutes_it_is_the_first_time_again() -> None:
    judged = {"m2": S - 601 * S}
    job = replace(RUNNING, hanging=replace(RUNNING.hanging, judged=judged))
    job, effects = after(job, *STUCK, exited("m2", pid=1, at_us=2 * S))
    assert Fence("m2") not in effects
    assert "m2" in job.machines


def test_a_process_that_does_not_end_costs_the_machine() -> None:
    job, _ = after(RUNNING, *STUCK)
    assert tick_due(job, S, 2 * S)
    assert after(job, Tick(at_us=2 * S))[1] == ()
    job, effects = after(job, Tick(at_us=3 * S + 5))
    assert effects[0] == Fence("m2")
    assert "it did not end" in job.incidents[-1].cause
    assert job.losses != {}


def test_the_end_of_another_process_is_no_answer() -> None:
    job, _ = after(RUNNING, *STUCK)
    job, _ = after(job, stack("m2", pid=9), exited("m2", pid=9, at_us=2 * S))
    assert job.incidents[-1].cause == "worker 0 of m2 ended (signal 9)"
    assert job.incidents[-1].stacks == {}


# --- nobody is missing ----------------------------------------------------------------------------


def all_wait(job: Job, *, epoch: int, step: int = 8, at_us: int = S) -> tuple[Job, Any]:
    """Everybody stands in the same call, and goes on standing."""
    seated = [(name, rank) for rank, name in enumerate(job.seats)]
    facts = [stands(name, r, epoch=epoch, step=step, at_us=at_us) for name, r in seated]
    job, effects = after(job, *facts)
    assert effects == ()
    assert tick_due(job, at_us, at_us + S)
    return after(job, Tick(at_us=at_us + 12 * S))


def test_where_all_wait_and_nobody_is_missing_the_step_is_retried_in_place() -> None:
    job, effects = all_wait(RUNNING, epoch=1)
    assert set(orders(effects, m.Interrupt)) == {"m1", "m2", "m3", "m4"}
    found = job.incidents[-1]
    assert (found.machine, found.ranks) == (None, ())
    assert "all ranks stood still in step 8 for 12.7 s" in found.cause
    assert "each waits in the gate" in found.cause
    assert found.marks["heard"] == S - 700_000


def in_a_circle(epoch: int = 1) -> list[WorkerSaid]:
    """0 and 1 wait at the gate, and 2 for what they do behind it."""
    at_gate = [stands(name, rank, calls=6, epoch=epoch) for name, rank in ALL[:2]]
    facts = [
        replace_fact(one, counts={"private/gate": 6, "0": 3}, group="private/gate")
        for one in at_gate
    ]
    behind = stands("m3", 2, calls=5, epoch=epoch)
    counts = {"private/gate": 5, "0": 4}
    return [*facts, replace_fact(behind, counts=counts, group="0", call="broadcast of group 0")]


def replace_fact(event: WorkerSaid, **values: Any) -> WorkerSaid:
    return msgspec.structs.replace(event, fact=msgspec.structs.replace(event.fact, **values))


def test_ranks_that_wait_for_each_other_end_the_job_with_what_each_waits_in() -> None:
    first, *others = in_a_circle()
    job, effects = after(RUNNING, first, others[0])
    assert (effects, job.phase) == ((), Phase.RUNNING)
    job, effects = after(job, others[1])
    assert (job.phase, job.code) == (Phase.ENDED, 1)
    assert "Ranks 0 and 2 wait for each other" in job.ended_because
    assert "rank 0 in the gate at train.py line 33 for rank 2" in job.ended_because
    assert "rank 2 in broadcast of group 0 at train.py line 33 for rank 0" in job.ended_because
    assert "first optimizer.step()" in job.ended_because


def test_what_they_said_in_an_older_epoch_is_no_circle() -> None:
    job, _ = after(RUNNING, *in_a_circle(epoch=0))
    assert job.phase is Phase.RUNNING


def test_a_circle_without_the_gate_says_nothing_of_it() -> None:
    says = [stands(name, rank) for name, rank in ALL[:2]]
    ahead = [replace_fact(one, counts={"a": 3 - n, "b": 2 + n}, group="ab"[n], call="a call")
             for n, one in enumerate(says)]  # fmt: skip
    job, _ = after(RUNNING, *ahead)
    assert "same order" in job.ended_because
    assert "gate" not in job.ended_because


def test_not_before_each_has_stood_for_long() -> None:
    first = stands("m1", 0, still_ms=60_000)
    job, effects = after(RUNNING, first, stands("m2", 1), stands("m3", 2))
    assert not orders(effects, m.Interrupt)
    assert orders(after(job, Tick(at_us=12 * S))[1], m.Interrupt)


def said_reached(machine: str, number: int, others: list[str], at_us: int) -> AgentSaid:
    return AgentSaid(at_us=at_us, machine=machine, fact=m.Reached(number=number, machines=others))


def probed(
    job: Job, reached: dict[str, list[str]], *, times: int = 2
) -> tuple[Job, tuple[Effect, ...]]:
    """All stand, and machines say `times` times whom they reach."""
    effects: tuple[Effect, ...] = ()
    spoken = [stands(name, rank, epoch=job.epoch) for rank, name in enumerate(job.seats)]
    for at_us in range(2 * S, 2 * S + 3 * S * times, 3 * S):
        job, effects = after(job, *spoken, Tick(at_us=at_us))
        spoken = []
        asked = orders(effects, m.Probe)
        assert set(job.seats) <= set(asked)
        for name, probe in asked.items():
            assert set(probe.vaults) == set(asked) - {name}
        answers = [
            AgentSaid(
                at_us=at_us + S, machine=name, fact=m.Reached(number=probe.number, machines=m_)
            )
            for name, probe in asked.items()
            if (m_ := reached.get(name)) is not None
        ]
        job, effects = after(job, *answers)
    return job, effects


def without(*ways: tuple[str, str], among: tuple[str, ...]) -> dict[str, list[str]]:
    """Whom each reaches, if these ways do not work."""
    return {
        name: [other for other in among if other != name and (name, other) not in ways]
        for name in among
    }


def fenced(effects: tuple[Effect, ...]) -> list[str]:
    return [effect.machine for effect in effects if isinstance(effect, Fence)]


SEATS = ("m1", "m3", "m4")
ALL_FOUR = ("m1", "m2", "m3", "m4")


def waiting_for_machines(wait_s: int = 60) -> Job:
    """No standby is left."""
    return replace(RECOVERED, spec=msgspec.structs.replace(RECOVERED.spec, wait_s=wait_s))


def test_the_machine_with_the_fewest_ways_goes() -> None:
    job, effects = probed(waiting_for_machines(), {"m1": ["m4"], "m3": [], "m4": ["m1"]})
    assert fenced(effects) == ["m3"]
    assert "m3 has 0 of 4 ways to the others" in job.incidents[-1].cause


def test_not_before_that_was_so_twice() -> None:
    reached = {"m1": ["m4"], "m3": [], "m4": ["m1"]}
    assert probed(waiting_for_machines(), reached, times=1)[1] == ()


def test_nor_if_it_was_in_another_standstill() -> None:
    reached = {"m1": ["m4"], "m3": [], "m4": ["m1"]}
    job = waiting_for_machines()
    job, _ = probed(replace(job, hanging=replace(job.hanging, retried=8)), reached, times=1)
    job, effects = after(job, Tick(at_us=60 * S))
    number = orders(effects, m.Probe)["m1"].number
    answers = [said_reached(name, number, others, 61 * S) for name, others in reached.items()]
    assert after(job, *answers)[1] == ()


def test_of_two_that_lost_each_other_one_goes_if_a_standby_would_mend_it() -> None:
    """Both have as many ways left; the others have one more."""
    cut = without(("m1", "m2"), ("m2", "m1"), among=ALL_FOUR)
    assert len(fenced(probed(RUNNING, cut)[1])) == 1
    one_way = without(("m1", "m2"), among=ALL_FOUR)
    assert fenced(probed(RUNNING, one_way)[1])[0] in ("m1", "m2")


def test_that_one_goes_whose_place_a_standby_can_take() -> None:
    """The standby m4 has no way to m2 either, so nothing would be won by m1's going."""
    ways = [("m1", "m2"), ("m2", "m1"), ("m4", "m2"), ("m2", "m4")]
    assert fenced(probed(RUNNING, without(*ways, among=ALL_FOUR))[1]) == ["m2"]


def test_what_all_machines_have_lost_is_waited_for() -> None:
    """The standbys too: nobody could do better in anybody's place."""
    assert probed(RUNNING, {name: [] for name in ALL_FOUR})[1] == ()


def test_who_does_not_say_whom_it_reaches_is_not_waited_for_for_ever() -> None:
    job, _ = after(
        waiting_for_machines(), *(stands(n, r, epoch=2) for r, n in enumerate(RECOVERED.seats))
    )
    job, _ = after(job, Tick(at_us=2 * S))
    assert job.hanging.probing is not None
    job, effects = after(job, Tick(at_us=8 * S))
    assert job.hanging.probing is None
    assert effects == ()


def test_an_answer_to_an_earlier_question_counts_nothing() -> None:
    job, _ = after(RUNNING, *(stands(n, r) for r, n in enumerate(RUNNING.seats)), Tick(at_us=2 * S))
    assert job.hanging.probing is not None
    late = said_reached("m1", job.hanging.probing.number - 1, ["m2"], 3 * S)
    assert decide(job, late) == (job, ())


def test_a_machine_that_nobody_could_replace_is_kept_all_the_same() -> None:
    alone = waiting_for_machines(wait_s=0)
    assert probed(alone, {"m1": ["m4"], "m3": [], "m4": ["m1"]})[1] == ()
    judged = replace(RECOVERED.hanging, judged={"m3": 0})
    again = [stands(n, r, "script" if n == "m3" else "call", epoch=2, calls=6 - (n == "m3"))
             for r, n in enumerate(RECOVERED.seats)]  # fmt: skip
    job, _ = after(replace(RECOVERED, hanging=judged), *again)
    assert job.hanging.condemned["m3"].give_up
    job, _ = after(job, exited("m3", pid=1, at_us=2 * S))
    assert "m3" in job.machines
    assert job.change is not None


def test_a_way_that_works_in_one_direction_counts_half() -> None:
    ways = without(("m3", "m1"), ("m4", "m3"), among=SEATS)
    assert fenced(probed(waiting_for_machines(), ways)[1]) == ["m3"]


@pytest.mark.parametrize("others", [SEATS, ()], ids=["all", "none"])
def test_if_all_are_alike_it_is_no_machine_s_fault_and_they_are_asked_again(
    others: tuple[str, ...],
) -> None:
    alike = {name: [o for o in others if o != name] for name in SEATS}
    job, effects = probed(waiting_for_machines(), alike)
    assert effects == ()
    assert set(orders(after(job, Tick(at_us=8 * S))[1], m.Probe)) == set(SEATS)


def test_a_network_that_is_only_slow_gets_ten_seconds() -> None:
    job, _ = probed(RUNNING, without(among=ALL_FOUR), times=1)
    job, effects = after(job, Tick(at_us=10 * S))
    assert not orders(effects, m.Interrupt)
    job, _ = probed(RUNNING, without(among=ALL_FOUR), times=3)
    assert orders(after(job, Tick(at_us=12 * S))[1], m.Interrupt)


# --- while members change -------------------------------------------------------------------------


def test_a_survivor_whose_script_does_not_come_to_the_boundary_is_ended() -> None:
    job, effects = after(BOUNDARY, stands("m3", 2, "script"))
    assert condemned(effects) == [], "the other one may be as slow as this one"
    assert tick_due(job, last_us=S, now_us=2 * S)
    job, effects = after(job, Tick(at_us=2 * S))
    assert condemned(effects) == ["m3"]
    job, _ = after(job, exited("m3", pid=1, at_us=2 * S))
    assert "rank 2 on m3 stood still" in job.incidents[-1].cause


def test_a_survivor_that_goes_round_for_longer_than_it_said_is_ended() -> None:
    """It does not stand, so it says nothing."""
    assert BOUNDARY.change is not None
    said = {
        rank: msgspec.structs.replace(one, patience_ms=300 if rank == 2 else 60_000)
        for rank, one in BOUNDARY.change.positions.items()
    }
    job = replace(BOUNDARY, change=replace(BOUNDARY.change, positions=said))
    assert job.change is not None
    late_us = job.change.since_us + 300_000
    assert condemned(after(job, Tick(at_us=late_us - 1000))[1]) == []
    _, effects = after(job, Tick(at_us=late_us))
    assert condemned(effects) == ["m3"]
    assert "rank 2 on m3 did not leave its step" in orders(effects, m.EndWorker)["m3"].why


def test_who_has_said_where_it_is_waits_for_who_stands_in_its_script() -> None:
    waits = [position("m1", 0, 2), parked("m4", 1, 2)]
    assert condemned(after(DRAINS, *waits, stands("m3", 2, "script"))[1]) == ["m3"]


def test_who_is_at_the_boundary_is_seen_to_wait() -> None:
    others = [at_boundary("m1", 0, 2), parked("m4", 1, 2)]
    assert condemned(after(BOUNDARY, *others, stands("m3", 2, "script"))[1]) == ["m3"]


def test_nobody_is_blamed_before_the_joiner_is_seen_to_wait_too() -> None:
    at_the_gate = at_boundary("m1", 0, 2)
    assert condemned(after(BOUNDARY, at_the_gate, stands("m3", 2, "script"))[1]) == []


def test_where_all_are_as_slow_nobody_is_blamed_for_a_change_that_waits() -> None:
    slow = [stands(name, rank, "script", epoch=2) for name, rank in (("m1", 0), ("m3", 2))]
    assert condemned(after(BOUNDARY, *slow, Tick(at_us=60 * S))[1]) == []


def test_a_survivor_that_waits_for_the_change_is_not() -> None:
    waits = [stands("m1", 0, "runtime"), stands("m3", 2, "call")]
    assert condemned(after(BOUNDARY, *waits, Tick(at_us=60 * S))[1]) == []
    assert condemned(after(DRAINS, *waits, Tick(at_us=60 * S))[1]) == []


def test_before_a_move_pauses_ranks_are_compared_as_always() -> None:
    assert condemned(after(MOVE_BINDS, *STUCK)[1]) == ["m2"]
    assert condemned(after(MOVE_BINDS, *wait_for("m2", 1))[1]) == []
    alone = stands("m2", 1, "script")
    assert condemned(after(MOVE_BINDS, alone, Tick(at_us=60 * S))[1]) == []


def test_a_stopped_survivor_is_ended_in_any_stage() -> None:
    stopped = state("m3", "stopped")
    for job in (DRAINS, BOUNDARY, MOVE_BINDS, RECOVERY_SWITCHES, BEGUN):
        assert condemned(after(job, stopped, Tick(at_us=3 * S))[1]) == ["m3"]


@pytest.mark.parametrize("job", [DRAINS, RECOVERY_SWITCHES], ids=["binds", "switches"])
def test_so_is_a_joiner(job: Job) -> None:
    job, effects = after(job, state("m4", "stopped"), Tick(at_us=3 * S))
    assert condemned(effects) == ["m4"]
    assert "rank 1 on m4 stood still" in job.hanging.condemned["m4"].cause
    job, _ = after(job, exited("m4", pid=1, at_us=4 * S))
    assert job.change is not None
    assert job.epoch_last > 2


def test_a_joiner_that_never_comes_up_is_not_waited_for() -> None:
    """The worker of m2 has crashed, and no standby is there: fresh ones start on m2, and stop."""
    job = running(standbys=0)
    job, effects = after(job, exited("m2", pid=1, at_us=S))
    assert list(orders(effects, m.StartWorkers)) == ["m2"]
    fact = m.WorkerState(local_rank=0, pid=42, state="stopped")
    late = m.WorkerState(local_rank=0, pid=1, state="stopped")
    said_so = [AgentSaid(at_us=S, machine="m2", fact=one) for one in (fact, late)]
    job, effects = after(job, *said_so, Tick(at_us=3 * S))
    assert orders(effects, m.EndWorker)["m2"].pid == 42
    job, effects = after(job, exited("m2", pid=42, at_us=4 * S))
    assert list(orders(effects, m.StartWorkers)) == ["m2"]
    assert job.hanging.disturbed == {}


def test_a_standby_may_be_stopped_for_a_while() -> None:
    assert condemned(after(RUNNING, state("m4", "stopped"), Tick(at_us=11 * S - 1))[1]) == []
    gone_on = state("m4", "", at_us=10 * S)
    assert condemned(after(RUNNING, state("m4", "stopped"), gone_on, Tick(at_us=30 * S))[1]) == []
    assert condemned(after(RUNNING, state("m4", "deaf"), Tick(at_us=30 * S))[1]) == []


@pytest.mark.parametrize("is_at", ["starting", "idle", "warming", "warm", "holding"])
def test_a_standby_that_stays_stopped_starts_again_and_the_second_time_goes(is_at: str) -> None:
    """Whatever it was at: a process that is stopped as it starts never comes up."""
    job = with_machine(RUNNING, "m4", state=MachineState(is_at))
    job, effects = after(job, state("m4", "stopped"), Tick(at_us=11 * S))
    order = orders(effects, m.EndWorker)["m4"]
    assert order.why == "worker 0 of m4 has no rank, and its process is stopped"
    job, effects = after(job, stack("m4"), exited("m4", pid=1, at_us=12 * S))
    assert list(orders(effects, m.StartWorkers)) == ["m4"]
    assert (job.incidents, job.hanging.condemned) == ((), {})
    fact = m.WorkerState(local_rank=0, pid=9, state="stopped")
    again = AgentSaid(at_us=20 * S, machine="m4", fact=fact)
    job, effects = after(job, again, Tick(at_us=30 * S))
    assert condemned(effects) == ["m4"]
    job, effects = after(job, exited("m4", pid=9, at_us=31 * S))
    assert Fence("m4") in effects
    assert (job.incidents, job.phase) == ((), Phase.RUNNING)


def test_a_machine_whose_ranks_another_one_is_to_take_is_no_standby_yet() -> None:
    stopped = m.WorkerState(local_rank=1, pid=2, state="stopped")
    job, _ = after(running(nproc=2), exited("m2", pid=1))
    job, _ = decide(job, AgentSaid(at_us=S, machine="m2", fact=stopped))
    assert condemned(decide(job, Tick(at_us=11 * S))[1]) == []


def test_what_was_said_in_an_older_epoch_is_dropped() -> None:
    job, _ = after(RUNNING, stands("m1", 0), stands("m3", 2))
    job = replace(RECOVERED, hanging=job.hanging)
    job, _ = after(job, Tick(at_us=3 * S))
    assert job.hanging.stands == {}
    job, effects = after(job, *(committed(name, r, 2) for r, name in enumerate(job.seats)))
    assert job.incidents[-1].outcome is Outcome.DONE
    assert kinds(effects) == []


def test_late_word_of_an_older_epoch_leaves_what_was_said_in_this_one() -> None:
    job, _ = after(RUNNING, stands("m1", 0))
    assert after(job, stands("m1", 0, "script", epoch=0)) == (job, ())


def test_the_end_of_the_job_names_the_place_and_the_stack() -> None:
    """A step that stands for the third time."""
    text = "Thread 0x2 (most recent call first):\n  File 'x'\n\nThread 0x1:\n  File 'train.py'"
    before = replace(
        RUNNING.incidents[0] if RUNNING.incidents else after(DRAINS)[0].incidents[0],
        outcome=Outcome.DONE, failed=(8, -1), lost=(), stacks={1: text}, cause="rank 1 stood still",
    )  # fmt: skip
    tries = tuple(replace(before, number=n, failed=(8, -n)) for n in (1, 2))
    job = replace(RUNNING, incidents=tries, committed=7)
    job, _ = after(job, *STUCK, exited("m2", pid=1, at_us=2 * S))
    facts = [
        said(name, m.Position(rank=r, epoch=2, committed=7, gate=0))
        for name, r in ALL if name != "m2"
    ]  # fmt: skip
    held = [
        AgentSaid(at_us=3 * S, machine=name, fact=m.VaultHeld(epoch=2, records={1: [8]}))
        for name in job.machines
    ]
    _, effects = after(job, *facts, *held)
    assert "Step 8 has failed 3 times" in ended(effects).text
    assert "File 'train.py'" in ended(effects).text
    assert "File 'x'" not in ended(effects).text


def test_a_job_that_has_ended_judges_nothing() -> None:
    job, _ = decide(RUNNING, said("m1", m.Raised(rank=0, step=1, error="E", traceback="")))
    assert after(job, *STUCK, Tick(at_us=9 * S))[1] == ()


def test_a_process_that_is_stopped_after_its_last_step_keeps_no_job_from_its_end() -> None:
    through = [finished(machine, rank) for machine, rank in ALL]
    gone = [exited("m2", code=0), exited("m3", code=0)]
    stops = state("m1", "stopped", at_us=S)
    job, effects = after(RUNNING, *through, stops, *gone, Tick(at_us=S + S // 2))
    assert not condemned(effects)
    job, effects = after(job, Tick(at_us=2 * S))
    assert orders(effects, m.EndWorker)["m1"].why.startswith("rank 0 on m1 stood still after")
    _, effects = after(job, exited("m1", code=-9))
    assert ended(effects).code == 0


def test_who_is_through_is_not_ended_for_standing_while_others_go_on() -> None:
    job, effects = after(RUNNING, finished("m1", 0), state("m1", "stopped"), Tick(at_us=9 * S))
    assert not condemned(effects)
    assert condemned(after(job, state("m2", "stopped"), Tick(at_us=9 * S))[1]) == ["m2"]


def test_a_way_that_works_the_second_time_is_not_missing() -> None:
    """Only what was missing twice counts; the other way has come back meanwhile."""
    first = without(("m3", "m1"), ("m1", "m3"), among=SEATS)
    then = without(among=SEATS)
    job, _ = probed(waiting_for_machines(), first, times=1)
    job, effects = after(job, Tick(at_us=5 * S))
    number = orders(effects, m.Probe)["m1"].number
    answers = [said_reached(name, number, others, 6 * S) for name, others in then.items()]
    job, effects = after(job, *answers)
    assert fenced(effects) == []
    assert job.hanging.missing == frozenset()


def test_a_change_that_comes_first_ends_the_question() -> None:
    """What was missing before it says nothing of who is there now."""
    first = without(("m3", "m1"), ("m1", "m3"), among=SEATS)
    job, _ = probed(waiting_for_machines(), first, times=1)
    assert job.hanging.missing
    job, effects = after(job, Tick(at_us=5 * S))
    assert job.hanging.probing is not None
    number = job.hanging.probing.number
    overtaken = replace(job, epoch=job.epoch + 1)
    answers = [said_reached(name, number, others, 6 * S) for name, others in first.items()]
    job, effects = after(overtaken, answers[0])
    assert (job.hanging.probing, job.hanging.missing, fenced(effects)) == (None, frozenset(), [])
