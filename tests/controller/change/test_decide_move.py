"""A planned move, stage by stage, and everything that can come between."""

from dataclasses import replace

import pytest
from jobs import (
    MOVE_ALL_SWITCHED,
    MOVE_BINDS,
    MOVE_PAUSES,
    MOVE_PREPARES,
    MOVE_SWITCHES,
    MOVED,
    RUNNING,
    SEATS,
    after,
    answers,
    at_boundary,
    committed,
    ended,
    exited,
    finished,
    hold_all,
    interrupted,
    kinds,
    loaded,
    lost,
    move,
    orders,
    parked,
    position,
    prepared,
    raised,
    running,
    said,
    switched,
    up,
    vault,
    warm,
)

from trainmover.controller import Job, decide
from trainmover.controller.effects import End
from trainmover.controller.state import Kind, MachineState, Outcome, Phase, Stage
from trainmover.protocol import messages as m

BEFORE_THE_SWITCH = [MOVE_BINDS, MOVE_PREPARES, MOVE_PAUSES]
STAGES = ["bind", "prepare", "pause"]
each_stage = pytest.mark.parametrize("job", BEFORE_THE_SWITCH, ids=STAGES)
every_stage = pytest.mark.parametrize(
    "job", [*BEFORE_THE_SWITCH, MOVE_SWITCHES], ids=[*STAGES, "switch"]
)
ALL_COMMITTED = tuple(committed(name, rank, 2) for rank, name in enumerate(("m1", "m4", "m3")))


# --- as planned -----------------------------------------------------------------------------------


def test_a_move_binds_the_standby_to_the_leavers_ranks() -> None:
    job, effects = decide(RUNNING, move("m2"))
    assert kinds(effects) == [("m4", "Bind")]
    bind = orders(effects, m.Bind)["m4"]
    assert (bind.epoch, bind.slot) == (2, 1)
    assert bind.records[1][0].vaults[0] == "vault-m3"
    assert job.machines["m4"].state is MachineState.BOUND


def test_nobody_prepares_before_the_joiner_is_parked() -> None:
    job, effects = decide(running(nproc=2), move("m2"))
    job, effects = decide(job, parked("m4", 2, 2))
    assert effects == ()
    job, effects = decide(job, parked("m4", 3, 2, local_rank=1))
    assert kinds(effects) == [("m1", "Prepare"), ("m4", "Prepare"), ("m3", "Prepare")]
    early = {machine: order.early for machine, order in orders(effects, m.Prepare).items()}
    address = {rank: job.machines["m2"].workers[rank - 2] for rank in (2, 3)}
    assert early["m1"] == early["m3"] == {}
    assert early["m4"] == {rank: m.Source(rank, address[rank]) for rank in (2, 3)}


def test_the_pause_is_asked_for_when_every_member_to_be_is_prepared() -> None:
    job, effects = after(MOVE_PREPARES, prepared("m1", 0, 2), prepared("m4", 1, 2))
    assert effects == ()
    job, effects = decide(job, prepared("m3", 2, 2))
    assert kinds(effects) == [("m1", "PauseAt"), ("m2", "PauseAt"), ("m3", "PauseAt")]
    assert job.change is not None
    assert job.change.stage is Stage.PAUSE


def test_the_switch_waits_for_every_rank_at_the_boundary() -> None:
    _, effects = after(MOVE_PAUSES, at_boundary("m1", 0, 2), at_boundary("m2", 1, 2))
    assert effects == ()


def test_the_switch_goes_to_leaver_joiner_and_stayers_with_the_leaver_as_source() -> None:
    job, effects = after(MOVE_PAUSES, *(at_boundary(f"m{r + 1}", r, 2) for r in range(3)))
    switches = orders(effects, m.Switch)
    assert sorted(switches) == ["m1", "m2", "m3", "m4"]
    order = switches["m4"]
    assert (order.epoch, order.committed, order.closing) == (2, 7, False)
    assert order.sources == {1: [m.Source(1, "m2/0"), m.Source(2, "m3/0"), m.Source(0, "m1/0")]}
    assert order.records == {}
    buddies = {name: its.buddies for name, its in switches.items()}
    assert buddies == {
        "m1": {0: "vault-m4"}, "m2": {1: "vault-m3"}, "m4": {1: "vault-m3"}, "m3": {2: "vault-m1"},
    }  # fmt: skip
    assert job.committed == 7


def test_ranks_that_paused_at_different_steps_end_the_job() -> None:
    events = (at_boundary("m1", 0, 2), at_boundary("m2", 1, 2, step=8), at_boundary("m3", 2, 2))
    _, effects = after(MOVE_PAUSES, *events)
    assert ended(effects).text.startswith("The ranks paused at different steps: [7, 8].")


def test_go_waits_for_every_rank_and_the_leaver_leaves_last() -> None:
    job, effects = after(MOVE_SWITCHES, *MOVE_ALL_SWITCHED[:-1])
    assert effects == ()
    job, effects = decide(job, MOVE_ALL_SWITCHED[-1])
    seated = ("m1", "m4", "m3")
    keep = [(name, "KeepSnapshots") for name in seated]
    assert kinds(effects) == [*((name, "Go") for name in seated), *keep, ("m2", "Leave")]
    assert (job.seats, job.epoch, job.change) == (seated, 2, None)
    assert job.machines["m4"].state is MachineState.ACTIVE
    assert job.machines["m2"].state is MachineState.LEAVING


def test_a_leaver_that_has_left_warms_up_as_a_standby() -> None:
    job, effects = after(MOVED, said("m2", m.Left()), warm("m2"))
    assert kinds(effects) == [("m2", "WarmUp"), ("m2", "Hold")]
    assert hold_all(job).machines["m2"].state is MachineState.WARM


def test_a_leaver_has_left_when_all_its_workers_have() -> None:
    job, _ = decide(running(nproc=2), move("m2"))
    ranks = [(0, "m1"), (1, "m1"), (2, "m4"), (3, "m4"), (4, "m3"), (5, "m3")]
    job, _ = after(job, parked("m4", 2, 2), parked("m4", 3, 2, local_rank=1))
    job, _ = after(job, *(prepared(name, rank, 2) for rank, name in ranks))
    job, _ = after(job, *(at_boundary(f"m{rank // 2 + 1}", rank, 2) for rank in range(6)))
    job, _ = after(job, *(switched(name, rank, 2) for rank, name in ranks))
    job, effects = decide(job, said("m2", m.Left()))
    assert (effects, job.machines["m2"].state) == ((), MachineState.LEAVING)
    job, effects = decide(job, said("m2", m.Left(), local_rank=1))
    assert kinds(effects) == [("m2", "WarmUp")]


def test_ranks_can_be_moved_back() -> None:
    job, _ = after(MOVED, *ALL_COMMITTED, said("m2", m.Left()), warm("m2"))
    job, effects = decide(job, move("m4", "r2"))
    assert kinds(effects) == [("m2", "Bind")]
    assert orders(effects, m.Bind)["m2"].epoch == 3


def test_a_standby_that_still_warms_up_is_bound_when_it_is_warm() -> None:
    job, _ = after(RUNNING, exited("m4"), up("m4"))
    job, effects = decide(job, move("m2"))
    assert (answers(effects), kinds(effects)) == ([], [])
    _, effects = decide(job, warm("m4"))
    assert kinds(effects) == [("m4", "Bind")]


# --- the answer -----------------------------------------------------------------------------------


def test_the_answer_comes_with_the_last_ranks_first_commit() -> None:
    job, effects = after(MOVED, *ALL_COMMITTED[:2])
    assert answers(effects) == []
    job, effects = decide(job, ALL_COMMITTED[2])
    (answer,) = answers(effects)
    assert (answer.request, answer.ok, answer.incident) == ("r1", True, 1)
    assert answer.text == "m2 -> m4 after step 7; rank 1 kept."


def test_the_answer_is_given_once() -> None:
    _, effects = after(MOVED, *ALL_COMMITTED, *ALL_COMMITTED, said("m2", m.Left()), lost("m4"))
    assert len(answers(effects)) == 1


def test_a_move_at_the_last_boundary_is_answered_when_the_scripts_end() -> None:
    _, effects = after(MOVED, *(finished(name, r) for r, name in enumerate(("m1", "m4", "m3"))))
    assert [answer.ok for answer in answers(effects)] == [True]


def test_a_loss_after_the_switch_and_before_a_commit_answers_the_move() -> None:
    job, effects = after(MOVED, committed("m1", 0, 2), lost("m3"))
    (answer,) = answers(effects)
    assert (answer.request, answer.ok) == ("r1", False)
    assert "overtaken: m3 was lost" in answer.text
    assert job.incidents[0].outcome is Outcome.SUPERSEDED


# --- cancelled before the switch ------------------------------------------------------------------


@each_stage
def test_a_joiner_that_dies_cancels_the_move(job: Job) -> None:
    job, effects = decide(job, lost("m4"))
    assert sorted(orders(effects, m.Discard)) == ["m1", "m2", "m3"]
    assert [answer.ok for answer in answers(effects)] == [False]
    assert "The job trains on." in answers(effects)[0].text
    assert (job.change, job.seats, job.epoch) == (None, SEATS, 1)
    assert job.incidents[0].outcome is Outcome.CANCELLED


@each_stage
def test_a_joiner_whose_worker_crashes_cancels_the_move_and_starts_again(job: Job) -> None:
    job, effects = decide(job, exited("m4"))
    assert [answer.ok for answer in answers(effects)] == [False]
    assert kinds(effects)[-1] == ("m4", "StartWorkers")
    assert job.machines["m4"].state is MachineState.STARTING


@each_stage
def test_a_leaver_that_dies_makes_it_a_recovery_with_the_same_joiner(job: Job) -> None:
    bound = job.machines["m4"]
    job, effects = decide(job, lost("m2"))
    assert "overtaken: m2 was lost" in answers(effects)[0].text
    assert job.change is not None
    assert (job.change.kind, job.change.joiners, job.change.epoch) == (Kind.RECOVERY, {1: "m4"}, 3)
    assert sorted(orders(effects, m.Interrupt)) == ["m1", "m3", "m4"]
    assert job.machines["m4"] == bound
    assert not orders(effects, m.Bind)


@each_stage
def test_a_stayer_that_dies_takes_the_joiner_for_its_own_place(job: Job) -> None:
    job, effects = decide(job, lost("m1"))
    assert ("m4", "Leave") in kinds(effects)
    assert job.change is not None
    assert job.change.joiners == {0: "m4"}
    job, effects = after(job, parked("m4", 1, 2), said("m4", m.Left()))
    assert [(name, order.slot) for name, order in orders(effects, m.Bind).items()] == [("m4", 0)]


def test_a_sandbox_that_fails_cancels_the_move() -> None:
    job, effects = decide(MOVE_BINDS, said("m4", m.SandboxFailed(rank=1, reason="it raised")))
    assert "m4 cannot take the ranks: it raised" in answers(effects)[0].text
    assert job.machines["m4"].state is MachineState.COLD
    assert not orders(effects, m.Leave)


def test_a_joiner_whose_step_has_another_trace_cancels_the_move() -> None:
    job, effects = decide(MOVE_BINDS, parked("m4", 1, 2, trace="other"))
    assert "as rank 1 its shadow step made other collectives" in answers(effects)[0].text
    assert job.machines["m4"].state is MachineState.COLD


def test_a_preparation_that_fails_cancels_the_move_and_the_joiner_returns() -> None:
    job, effects = decide(MOVE_PREPARES, prepared("m3", 2, 2, "no route"))
    assert "phase 1 failed on rank 2 (no route)" in answers(effects)[0].text
    assert orders(effects, m.Leave)["m4"].epoch == 2
    assert job.incidents[0].outcome is Outcome.FAILED
    job, effects = decide(job, said("m4", m.Left()))
    assert kinds(effects) == [("m4", "Hold")]  # What it has proven still holds.
    assert hold_all(job).machines["m4"].state is MachineState.WARM


@each_stage
def test_a_script_that_ends_cancels_the_move(job: Job) -> None:
    job, effects = decide(job, finished("m1", 0))
    assert "the script ended first" in answers(effects)[0].text
    assert orders(effects, m.Leave)["m4"].epoch == 2
    assert sorted(orders(effects, m.Ending)) == ["m1", "m2", "m3"]


@each_stage
def test_a_broken_link_overtakes_the_move(job: Job) -> None:
    job, effects = decide(job, interrupted("m1", 0, 1))
    assert [answer.ok for answer in answers(effects)] == [False]
    assert job.change is not None
    assert (job.change.kind, job.change.joiners) == (Kind.RECOVERY, {})
    assert job.machines["m4"].state is MachineState.LEAVING


def test_a_late_parked_does_not_count_for_a_joiner_that_was_sent_away() -> None:
    job, _ = after(running(nproc=2), move("m2"), finished("m1", 0))
    job, _ = after(job, parked("m4", 2, 2), said("m4", m.Left(), local_rank=1))
    assert job.machines["m4"].state is MachineState.LEAVING


# --- in the switch --------------------------------------------------------------------------------


def test_in_the_switch_a_lost_joiner_makes_it_a_recovery_without_joiners() -> None:
    job, effects = decide(MOVE_SWITCHES, lost("m4"))
    assert "overtaken: m4 was lost" in answers(effects)[0].text
    assert job.change is not None
    assert (job.change.kind, job.change.joiners) == (Kind.RECOVERY, {})
    assert sorted(orders(effects, m.Interrupt)) == list(SEATS)


def test_in_the_switch_a_lost_leaver_is_replaced_by_the_joiner_from_a_replica() -> None:
    job, _ = decide(MOVE_SWITCHES, lost("m2"))
    job, _ = after(job, position("m1", 0, 3), position("m3", 2, 3))
    job, _ = after(job, vault("m1", 3), vault("m3", 3, {1: [8]}), vault("m4", 3))
    job, effects = after(job, at_boundary("m1", 0, 3), at_boundary("m3", 2, 3))
    switch = orders(effects, m.Switch)["m4"]
    assert switch.sources[1][0] == m.Source(2, "m3/0")
    assert switch.records == {1: ["vault-m3"]}


def test_in_the_switch_a_joiner_that_cannot_load_leaves_the_ranks_where_they_were() -> None:
    job, effects = decide(MOVE_SWITCHES, said("m4", m.SandboxFailed(rank=1, reason="mismatch")))
    assert [answer.ok for answer in answers(effects)] == [False]
    assert job.change is not None
    assert (job.change.joiners, job.seats) == ({}, SEATS)
    assert job.incidents[-1].cause == "m4 cannot take the ranks: mismatch"


def test_in_the_switch_a_link_of_the_new_epoch_may_break() -> None:
    job, effects = decide(MOVE_SWITCHES, interrupted("m4", 1, 2))
    assert job.change is not None
    assert (job.change.epoch, job.change.kind) == (3, Kind.RECOVERY)
    assert sorted(orders(effects, m.Interrupt)) == ["m1", "m2", "m3", "m4"]


def test_who_got_wrong_state_takes_no_rank_and_the_job_goes_on() -> None:
    job, effects = decide(MOVE_SWITCHES, loaded("m4", 1, 2, equal=False))
    assert not any(isinstance(effect, End) for effect in effects)
    assert job.seats == SEATS
    assert "did not receive the state" in job.machines["m4"].note
    assert not job.incidents[-1].certificates


# --- facts that do not count ----------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 3])
@every_stage
def test_facts_of_another_epoch_change_nothing(job: Job, epoch: int) -> None:
    for fact in (
        m.Prepared(rank=0, epoch=epoch),
        m.Prepared(rank=0, epoch=epoch, reason="failed"),
        m.AtBoundary(rank=0, epoch=epoch, committed=3),
        m.Switched(rank=0, epoch=epoch),
        m.Position(rank=0, epoch=epoch, committed=3, gate=0),
    ):
        assert decide(job, said("m1", fact)) == (job, ())
    assert decide(job, vault("m1", epoch)) == (job, ())


def test_only_the_machine_that_has_a_rank_speaks_for_it() -> None:
    for machine in ("m1", "m4"):
        assert decide(MOVE_PAUSES, at_boundary(machine, 1, 2)) == (MOVE_PAUSES, ())
    assert decide(MOVE_PREPARES, prepared("m2", 1, 2)) == (MOVE_PREPARES, ())
    assert decide(MOVE_SWITCHES, switched("m2", 1, 2)) == (MOVE_SWITCHES, ())
    assert decide(MOVE_SWITCHES, loaded("m3", 1, 2)) == (MOVE_SWITCHES, ())


def test_a_rank_that_does_not_exist_is_ignored() -> None:
    assert decide(MOVE_PAUSES, at_boundary("m1", 17, 2)) == (MOVE_PAUSES, ())


def test_a_leaver_that_raises_while_it_is_unwound_harms_nobody() -> None:
    assert decide(MOVED, raised("m2", 1)) == (MOVED, ())
    assert decide(MOVED, finished("m2", 1, code=3)) == (MOVED, ())
    assert decide(MOVED, said("m2", m.WentOn(rank=1, step=9))) == (MOVED, ())


def test_facts_said_twice_count_once() -> None:
    job, effects = after(MOVE_PREPARES, *(prepared("m1", 0, 2),) * 3)
    assert effects == ()
    assert job.change is not None
    assert job.change.prepared == {0}


def test_a_loss_with_a_finished_script_does_not_open_a_recovery() -> None:
    job, _ = after(MOVED, finished("m4", 1))
    job, effects = decide(job, lost("m4"))
    assert kinds(effects) == [("", "Fence")]
    assert job.phase is Phase.RUNNING
    assert replace(job, machines=MOVED.machines).change is None
