"""Standbys prove every kind of slot, hold a run of one, and prove it again in time."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from jobs import (
    RUNNING,
    after,
    answers,
    begun,
    exited,
    failed,
    finished,
    held,
    hold_all,
    joined,
    kinds,
    lost,
    move,
    orders,
    parked,
    recorded,
    running,
    said,
    up,
    warm,
)

from trainmover.controller import Job, decide
from trainmover.controller.change.seats import with_machine
from trainmover.controller.events import ContactChanged, Tick
from trainmover.controller.standby.attest import known_ms
from trainmover.controller.standby.joiners import choose_joiners
from trainmover.controller.standby.warming import (
    ATTEST_AGAIN_US,
    REST,
    TRY_AGAIN_US,
    TRY_AGAIN_US_MAX,
    hold_for,
)
from trainmover.controller.state import Cordon, MachineState, Phase
from trainmover.ids import MachineId, Slot
from trainmover.protocol import messages as m


def staged(programs: str = "abb", **knobs: Any) -> Job:
    """RUNNING's machines, but a program for each rank; m4 (m5, ...) has been told to warm up."""
    job = begun(machines=len(programs), **knobs)
    facts = [recorded(f"m{rank + 1}", rank, trace=t) for rank, t in enumerate(programs)]
    return after(job, *facts)[0]


STAGED = staged()
STAGED_WARM, _ = after(STAGED, warm("m4", 0, trace="a"), warm("m4", 1, trace="b"))
STAGED_HELD = after(STAGED_WARM, held("m4", 0, trace="a"))[0]


def m4(job: Job) -> Any:
    return job.machines["m4"]


# --- every kind -----------------------------------------------------------------------------------


def test_one_slot_of_each_kind_is_warmed_in_turn() -> None:
    assert (m4(STAGED).state, m4(STAGED).work) == (MachineState.WARMING, 0)
    job, effects = decide(STAGED, warm("m4", 0, trace="a"))
    assert orders(effects, m.WarmUp)["m4"].slot == 1
    job, effects = decide(job, warm("m4", 1, trace="b"))
    assert kinds(effects) == [("m4", "Hold")]


def test_each_kind_is_attested_with_time_and_measures() -> None:
    job, _ = decide(STAGED, warm("m4", 0, trace="a", at_us=77))
    attest = m4(job).attests[0]
    assert (attest.at_us, attest.warm_ms, attest.held_bytes, attest.run_ms) == (77, 50, 1000, None)
    job, _ = decide(STAGED_WARM, held("m4", 0, trace="a", at_us=99))
    attest = m4(job).attests[0]
    assert (attest.at_us, attest.run_ms, attest.held_bytes) == (99, 20, 1000)


def test_several_workers_attest_together() -> None:
    job = running(nproc=2)
    attest = m4(job).attests[0]
    assert (attest.warm_ms, attest.run_ms, attest.held_bytes) == (50, 20, 2000)
    assert attest.device_bytes == 20


def test_a_fact_about_other_ranks_than_those_at_work_is_late() -> None:
    assert decide(STAGED, warm("m4", 1, trace="b")) == (STAGED, ())
    assert decide(STAGED, failed("m4", 2)) == (STAGED, ())
    assert decide(STAGED_WARM, held("m4", 2, trace="b")) == (STAGED_WARM, ())


def test_a_standby_needed_between_two_warm_ups_is_bound_at_once() -> None:
    job, _ = decide(STAGED, lost("m3"))
    assert m4(job).state is MachineState.WARMING
    job, effects = decide(job, warm("m4", 0, trace="a"))
    assert orders(effects, m.Bind)["m4"].slot == 2


# --- holding --------------------------------------------------------------------------------------


def test_standbys_hold_different_slots() -> None:
    job = running(standbys=3)
    assert [job.machines[name].held for name in ("m4", "m5", "m6")] == [0, 1, 2]


def test_more_standbys_than_slots_hold_some_twice() -> None:
    assert running(machines=1, standbys=2).machines["m3"].held == 0


def test_a_slot_whose_machine_was_lost_before_is_held_first() -> None:
    job, _ = decide(running(standbys=0), exited("m3"))
    job, _ = after(job, up("m3"), parked("m3", 2, 2))
    job = replace(job, change=None)
    job, effects = after(job, joined("m4", standby=True), up("m4"), warm("m4"))
    assert orders(effects, m.Hold)["m4"].slot == 2


def test_a_loss_of_the_held_slot_goes_to_its_holder() -> None:
    job = running(standbys=3)
    assert choose_joiners(job, [1], taken=()) == {1: "m5"}
    assert choose_joiners(job, [2, 0], taken=()) == {0: "m4", 2: "m6"}
    assert choose_joiners(job, [1], taken=["m5"]) == {1: "m4"}


def test_after_a_loss_the_next_standby_holds_what_nobody_does() -> None:
    job, effects = decide(running(standbys=2), lost("m1"))
    assert orders(effects, m.Bind)["m4"].slot == 0
    job = replace(job, change=None, seats=("m4", *job.seats[1:]))
    job, effects = after(job, joined("m6", standby=True), up("m6"), warm("m6"))
    assert (job.machines["m5"].held, orders(effects, m.Hold)["m6"].slot) == (1, 0)


def test_a_machine_that_makes_its_run_can_be_bound_and_what_it_says_of_that_is_late() -> None:
    job, effects = decide(STAGED_WARM, lost("m2"))
    assert orders(effects, m.Bind)["m4"].slot == 1
    unchanged, effects = decide(job, held("m4", 0, trace="a"))
    assert (unchanged, effects) == (job, ())
    assert decide(job, failed("m4", 0)) == (job, ())


def test_every_run_has_a_number_and_a_held_one_keeps_it_when_it_is_bound() -> None:
    _, warming = after(begun(), *(recorded(f"m{rank + 1}", rank) for rank in range(3)))
    _, holding = after(STAGED, warm("m4", 0, trace="a"), warm("m4", 1, trace="b"))
    assert orders(warming, m.WarmUp)["m4"].run == 1
    assert orders(holding, m.Hold)["m4"].run == 3
    for job in (STAGED_WARM, STAGED_HELD):  # It begins that run, or holds it.
        assert orders(decide(job, lost("m1"))[1], m.Bind)["m4"].run == 3
        assert orders(decide(job, lost("m2"))[1], m.Bind)["m4"].run == 4


def test_a_joiner_sent_back_has_not_lost_its_proof() -> None:
    job, _ = after(RUNNING, move("m2"), lost("m2"), said("m4", m.Left()))
    assert m4(job).proven(0)


def test_nothing_is_begun_once_a_script_has_ended() -> None:
    _, effects = after(STAGED, finished("m1", 0), warm("m4", 0, trace="a"))
    assert not orders(effects, m.WarmUp)
    assert not orders(effects, m.Hold)


@pytest.mark.parametrize(
    ("readiness", "wanted"), [("idle", []), ("warm", ["WarmUp"]), ("held", ["WarmUp", "Hold"])]
)
def test_readiness_says_how_far_standbys_go(readiness: str, wanted: list[str]) -> None:
    job = begun()
    job = replace(job, spec=msgspec.structs.replace(job.spec, readiness=readiness))
    facts = [recorded(f"m{rank + 1}", rank) for rank in range(3)]
    job, effects = after(job, *facts, warm("m4"))
    assert [kind for name, kind in kinds(effects) if name == "m4"] == wanted
    assert choose_joiners(job, [1], taken=()) == {1: "m4"}


# --- failures -------------------------------------------------------------------------------------


def test_one_failed_kind_is_noted_and_the_others_go_on() -> None:
    job, effects = decide(STAGED, failed("m4", 0, "it raised"))
    assert orders(effects, m.WarmUp)["m4"].slot == 1
    job, effects = decide(job, warm("m4", 1, trace="b"))
    assert orders(effects, m.Hold)["m4"].slot == 1
    assert m4(job).note == "cannot be rank 0: it raised"
    assert (m4(job).proven(0), m4(job).proven(1)) == (False, True)


def test_the_last_failed_kind_makes_a_machine_cold() -> None:
    job, effects = after(STAGED, failed("m4", 0, "first"), failed("m4", 1, "second"))
    assert m4(job).state is MachineState.COLD
    assert "second" in m4(job).note
    assert not orders(effects, m.Hold)


def test_another_trace_in_a_warm_up_is_a_failure_of_the_kind() -> None:
    job, effects = decide(STAGED, warm("m4", 0, trace="x"))
    assert "as rank 0 its shadow step made other collectives" in m4(job).note
    assert orders(effects, m.WarmUp)["m4"].slot == 1


def test_other_workers_of_a_machine_may_still_run_so_fresh_ones_go_on() -> None:
    job = begun(machines=2, nproc=2)
    traces = "aabb"
    job, _ = after(
        job,
        *(recorded(f"m{r // 2 + 1}", r, trace=traces[r], local_rank=r % 2) for r in range(4)),
    )
    job, effects = decide(job, failed("m3", 0))
    assert kinds(effects) == [("m3", "StartWorkers")]
    job, effects = after(job, up("m3"), up("m3", local_rank=1))
    assert orders(effects, m.WarmUp)["m3"].slot == 1


def test_one_that_failed_the_kind_is_taken_only_if_no_other_can_be() -> None:
    job, _ = after(STAGED, failed("m4", 0), joined("m5", standby=True))
    assert choose_joiners(job, [0], taken=()) == {0: "m5"}
    assert choose_joiners(job, [0], taken=["m5"]) == {0: "m4"}
    assert choose_joiners(job, [1], taken=()) == {1: "m4"}


def test_a_joiner_that_fails_its_kind_while_it_warms_up_is_replaced() -> None:
    job, _ = after(staged(standbys=2), lost("m1"))
    assert job.change is not None
    chosen = job.change.joiners[0]
    job, _ = decide(job, failed(chosen, 0))
    assert job.change is not None
    assert job.change.joiners == {0: "m5" if chosen == "m4" else "m4"}


def test_a_joiner_that_fails_another_kind_than_its_own_stays_the_joiner() -> None:
    """m4 is to be rank 2, and is still in the warm-up as rank 0, which runs another program."""
    job, effects = after(STAGED, lost("m3"), failed("m4", 0))
    assert orders(effects, m.Bind)["m4"].slot == 2
    assert (job.epoch_last, len(job.incidents)) == (2, 1)


def test_a_held_run_that_ends_badly_fails_its_kind() -> None:
    job, effects = decide(STAGED_HELD, failed("m4", 0))
    assert m4(job).held is None
    assert orders(effects, m.Hold)["m4"].slot == 1


# --- once in a process ----------------------------------------------------------------------------

ONCE_DOWN, ONCE_EFFECTS = decide(RUNNING, failed("m4", 0, "port in use", again=True))


def test_a_script_that_runs_once_gets_fresh_processes_and_goes_directly_to_hold() -> None:
    assert kinds(ONCE_EFFECTS) == [("m4", "StartWorkers")]
    assert "cannot run twice in one process (port in use)" in m4(ONCE_DOWN).note
    job, effects = decide(ONCE_DOWN, up("m4"))
    assert kinds(effects) == [("m4", "Hold")]
    job = hold_all(job)
    assert (m4(job).state, m4(job).held) == (MachineState.WARM, 0)
    assert "cannot run twice" in m4(job).note


def test_a_run_in_a_fresh_process_says_what_memory_it_takes() -> None:
    job, _ = after(STAGED, failed("m4", 0, again=True), up("m4"), held("m4", 0, trace="a"))
    attest = m4(job).attests[0]
    assert (attest.warm_ms, attest.run_ms, attest.held_bytes) == (0, 20, 2000)


def test_bound_to_another_slot_it_starts_again_first() -> None:
    job = hold_all(after(ONCE_DOWN, up("m4"))[0])
    _, effects = decide(job, lost("m1"))
    assert orders(effects, m.Bind)["m4"].slot == 0
    job, effects = decide(job, lost("m2"))
    assert ("m4", "StartWorkers") in kinds(effects)
    _, effects = decide(job, up("m4"))
    assert orders(effects, m.Bind)["m4"].slot == 1


def test_a_joiner_that_cannot_run_twice_stays_the_joiner() -> None:
    job, _ = decide(RUNNING, lost("m2"))
    job, effects = decide(job, failed("m4", 1, again=True))
    assert kinds(effects) == [("m4", "StartWorkers")]
    job, effects = decide(job, up("m4"))
    assert (kinds(effects), job.epoch_last) == ([("m4", "Bind")], 2)


def test_so_does_one_of_a_move() -> None:
    job, _ = decide(RUNNING, move("m2"))
    job, effects = decide(job, failed("m4", 1, again=True))
    assert (kinds(effects), answers(effects)) == ([("m4", "StartWorkers")], [])


def test_sent_back_it_starts_again() -> None:
    job = hold_all(after(ONCE_DOWN, up("m4"))[0])
    job, _ = after(job, move("m1"), said("m1", m.Prepared(rank=0, epoch=2, reason="no")))
    job, _ = after(job, parked("m4", 0, 2), said("m3", m.Prepared(rank=2, epoch=2, reason="no")))
    _, effects = decide(job, said("m4", m.Left()))
    assert kinds(effects) == [("m4", "StartWorkers")]


def test_a_failure_in_the_fresh_process_too_was_the_kinds_and_not_the_process() -> None:
    job, _ = after(STAGED, warm("m4", 0, trace="a"), failed("m4", 1, "no", again=True))
    job, effects = decide(job, up("m4"))
    assert orders(effects, m.Hold)["m4"].slot == 1
    job, _ = after(job, failed("m4", 1, "no"), up("m4"))
    assert (m4(job).once, m4(job).why_unfit(1)) == ("", "no")
    assert m4(job).state is MachineState.WARMING


# --- a second standby for the same ranks ----------------------------------------------------------


def test_a_second_standby_that_fails_is_let_go_and_the_first_stays_the_joiner() -> None:
    job, _ = decide(running(standbys=2), lost("m2"))
    assert job.change is not None
    ((slot, first),) = job.change.joiners.items()
    job, _ = after(job, ContactChanged(at_us=1_000_000, away=[first]), Tick(at_us=1_200_000))
    assert job.change is not None
    ((at, second),) = job.change.hedges.items()
    assert (at, job.machines[second].state) == (slot, MachineState.BOUND)
    job, _ = decide(job, failed(second, slot, "it raised"))
    assert job.change is not None
    assert (job.change.joiners, job.change.hedges) == ({slot: first}, {})
    assert job.machines[second].why_unfit(0) == "it raised"
    assert job.epoch_last == 2


@pytest.mark.parametrize(
    ("cordoned", "second"), [({}, "m2"), ({MachineId("m2"): Cordon(0, "not fit")}, None)]
)
def test_a_cordoned_machine_is_no_second_standby_for_the_slot_that_it_had(
    cordoned: dict[MachineId, Cordon], second: str | None
) -> None:
    job, _ = after(running(standbys=1), lost("m2"), joined("m2", standby=True), up("m2"))
    job = replace(job, cordoned=cordoned)
    job, _ = after(job, ContactChanged(at_us=1_000_000, away=["m4"]), Tick(at_us=1_200_000))
    assert job.change is not None
    assert job.change.joiners == {1: "m4"}
    assert job.change.hedges.get(1) == second


def test_a_machine_whose_worker_starts_again_there_gets_no_second_beside_it() -> None:
    job, _ = after(running(standbys=0), exited("m2"), joined("m4", standby=True), up("m4"))
    job, _ = decide(job, Tick(at_us=60_000_000))
    assert job.change is not None
    assert (job.change.joiners, job.change.hedges) == ({1: "m2"}, {})


# --- a run that will soon be needed ---------------------------------------------------------------


def test_a_standby_that_holds_another_run_makes_the_one_that_will_be_needed() -> None:
    job, effects = hold_for(RUNNING, Slot(2), since_us=None)
    assert orders(effects, m.Hold)["m4"].slot == 2
    assert hold_for(job, Slot(2), since_us=None) == (job, ()), "it is being made"
    rest_us = REST * 1000 * known_ms(m4(RUNNING))
    assert hold_for(RUNNING, Slot(2), since_us=rest_us) == (job, effects)
    assert hold_for(RUNNING, Slot(2), since_us=rest_us - 1) == (RUNNING, ())


def test_while_members_change_or_the_job_ends_no_other_run_is_made_to_be_held() -> None:
    changing, _ = decide(running(standbys=2), move("m2"))
    for job in (changing, replace(RUNNING, phase=Phase.ENDING)):
        assert hold_for(job, Slot(2), since_us=None) == (job, ())


@pytest.mark.parametrize(
    "otherwise",
    [{"state": MachineState.HOLDING, "work": 1}, {"held": None}, {"once": "port in use"}],
)
def test_a_standby_is_not_disturbed_that_is_at_work_or_cannot_hold_a_second_run(
    otherwise: dict[str, Any],
) -> None:
    job = with_machine(RUNNING, m4(RUNNING).id, **otherwise)
    assert hold_for(job, Slot(2), since_us=None) == (job, ())


# --- versions -------------------------------------------------------------------------------------


def test_a_standby_with_another_torch_is_not_warmed() -> None:
    job, effects = after(RUNNING, joined("m5", standby=True), up("m5", torch="1.9"))
    assert job.machines["m5"].state is MachineState.COLD
    assert job.machines["m5"].note == "it runs torch 1.9, the job's ranks run torch 2"
    assert (job.machines["m5"].torch, job.machines["m5"].version) == ("1.9", "1")
    assert not orders(effects, m.WarmUp)


def test_a_joiner_that_turns_out_to_have_another_torch_is_replaced() -> None:
    job, _ = after(running(standbys=0), joined("m5", standby=True), joined("m6", standby=True))
    job, _ = decide(job, lost("m2"))
    assert job.change is not None
    assert job.change.joiners == {1: "m5"}
    job, effects = decide(job, up("m5", torch="1.9"))
    assert job.change is not None
    assert job.change.joiners == {1: "m6"}
    assert not orders(effects, m.Bind)


def test_what_torch_the_ranks_ran_is_known_when_none_is_left() -> None:
    job = running(machines=2, standbys=0)
    job = replace(job, spec=msgspec.structs.replace(job.spec, wait_s=60))
    job, _ = after(job, joined("m5", standby=True), up("m5", torch="1.9"), lost("m1"))
    assert job.change is not None
    assert (job.change.joiners, job.change.missing) == ({}, {0})
    job, _ = after(job, joined("m6", standby=True), up("m6"))
    assert job.change is not None
    assert job.change.joiners == {0: "m6"}


# --- again ----------------------------------------------------------------------------------------


def test_an_old_proof_is_made_again_one_machine_at_a_time() -> None:
    job = running(standbys=2)
    assert decide(job, Tick(at_us=ATTEST_AGAIN_US - 1)) == (job, ())
    job, effects = decide(job, Tick(at_us=ATTEST_AGAIN_US))
    assert kinds(effects) == [("m4", "WarmUp")]
    assert decide(job, Tick(at_us=ATTEST_AGAIN_US + 1))[1] == ()
    job, effects = decide(job, warm("m4", at_us=ATTEST_AGAIN_US + 2))
    assert kinds(effects) == [("m4", "Hold")]
    again = held("m4", 0, at_us=ATTEST_AGAIN_US + 2)
    job, effects = after(job, again, Tick(at_us=ATTEST_AGAIN_US + 3))
    assert kinds(effects) == [("m5", "WarmUp")]


def test_where_a_process_runs_once_a_fresh_one_proves_it_again() -> None:
    job = hold_all(after(ONCE_DOWN, up("m4"))[0])
    _, effects = decide(job, Tick(at_us=ATTEST_AGAIN_US))
    assert kinds(effects) == [("m4", "StartWorkers")]


def test_a_new_steady_trace_makes_every_standby_prove_it() -> None:
    job, effects = decide(RUNNING, recorded("m2", 1, trace="compiled"))
    assert kinds(effects) == [("m4", "WarmUp")]
    assert (m4(job).held, m4(job).proven(0)) == (None, False)
    assert decide(RUNNING, recorded("m2", 1))[1] == ()


def other_steps(machine: str, rank: int, compiled: str = "c") -> Any:
    return said(machine, m.StepsChanged(rank=rank, step=10, trace="t", compiled=compiled))


def test_so_do_other_steps_of_which_the_second_rank_tells_no_news() -> None:
    job, effects = decide(RUNNING, other_steps("m1", 0))
    assert kinds(effects) == [("m4", "WarmUp")]
    assert (m4(job).held, m4(job).proven(0)) == (None, False)
    assert decide(job, other_steps("m2", 1)) == (job, ())
    job = hold_all(decide(job, warm("m4", 0))[0])
    assert (m4(job).held, m4(job).proven(0)) == (0, True)
    assert kinds(decide(job, other_steps("m2", 1, "more"))[1]) == [("m4", "WarmUp")]


def test_a_warm_up_that_began_before_steps_changed_is_made_again() -> None:
    job, _ = decide(STAGED, other_steps("m1", 0))
    job, effects = decide(job, warm("m4", 0, trace="a"))
    assert orders(effects, m.WarmUp)["m4"].slot == 0
    job, effects = decide(job, warm("m4", 0, trace="a"))
    assert orders(effects, m.WarmUp)["m4"].slot == 1


def test_other_steps_of_a_rank_that_lives_elsewhere_are_late() -> None:
    assert decide(RUNNING, other_steps("m2", 0)) == (RUNNING, ())


def test_a_run_of_the_old_program_is_not_bound_during_a_change() -> None:
    job, _ = after(running(standbys=2), lost("m2"))
    job, effects = decide(job, recorded("m3", 2, trace="compiled"))
    assert job.machines["m4"].state is MachineState.DOWN
    assert effects == ()


# --- cold -----------------------------------------------------------------------------------------

COLD, _ = decide(RUNNING, failed("m4", 0, "no room"))


def ticks(job: Job, *at_us: int) -> tuple[Job, list[tuple[str, str]]]:
    job, effects = after(job, *(Tick(at_us=at) for at in at_us))
    return job, kinds(effects)


def test_a_cold_machine_is_tried_again_after_a_wait_that_grows() -> None:
    assert m4(COLD).state is MachineState.COLD
    job, begun_us = COLD, 0
    for wait_us in (TRY_AGAIN_US, 2 * TRY_AGAIN_US, 4 * TRY_AGAIN_US):
        job, told = ticks(job, begun_us, begun_us + wait_us - 1)
        assert told == []
        job, told = ticks(job, begun_us + wait_us)
        assert told == [("m4", "StartWorkers")]
        job, effects = decide(job, up("m4"))
        assert kinds(effects) == [("m4", "WarmUp")]
        job, begun_us = decide(job, failed("m4", 0, "no room"))[0], begun_us + wait_us
    assert m4(job).note == "no room"


def test_the_wait_has_an_end_and_begins_anew_once_it_was_warm() -> None:
    often = replace(m4(COLD), tries=40)
    job = replace(COLD, machines=COLD.machines.having("m4", often))
    job, told = ticks(job, 0, TRY_AGAIN_US_MAX)
    assert told == [("m4", "StartWorkers")]
    job = hold_all(after(job, up("m4"), warm("m4", 0))[0])
    job, _ = ticks(job, TRY_AGAIN_US_MAX + 1)
    assert m4(job).tries == 0


def test_after_crashes_one_more_is_enough() -> None:
    job = RUNNING
    for _ in range(3):
        job, _ = after(job, exited("m4"), up("m4"))
    assert m4(job).state is MachineState.COLD
    job, told = ticks(job, 0, TRY_AGAIN_US)
    assert told == [("m4", "StartWorkers")]
    assert m4(after(job, up("m4"), exited("m4"))[0]).state is MachineState.COLD


def test_another_torch_stays_another_torch() -> None:
    job, _ = after(RUNNING, joined("m5", standby=True), up("m5", torch="1.9"))
    assert ticks(job, 0, 100 * TRY_AGAIN_US)[1].count(("m5", "StartWorkers")) == 0
