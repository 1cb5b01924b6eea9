"""An unplanned loss: drain, verdict, joiner, switch; and the next loss in the middle of it."""

from dataclasses import replace

import pytest
from jobs import (
    AT_BOUNDARY,
    BEGUN,
    BOUNDARY,
    DRAINED,
    DRAINS,
    GATHERING,
    MOVE_ALL_SWITCHED,
    RECOVERED,
    RECOVERY_SWITCHES,
    RUNNING,
    SEATS,
    after,
    at_boundary,
    begun,
    certificate,
    committed,
    ended,
    exited,
    failed,
    finished,
    interrupted,
    joined,
    kinds,
    loaded,
    lost,
    mends_a_link,
    orders,
    parked,
    position,
    raised,
    recorded,
    running,
    said,
    switched,
    up,
    vault,
    warm,
)

from trainmover.controller import Job, decide
from trainmover.controller import effects as effects_room
from trainmover.controller.change.buddies import holding
from trainmover.controller.change.interruption import RETRIES_MAX
from trainmover.controller.events import WorkerSaid
from trainmover.controller.state import Kind, MachineState, Outcome, Phase, Stage
from trainmover.protocol import messages as m

every_stage = pytest.mark.parametrize(
    "job", [DRAINS, BOUNDARY, RECOVERY_SWITCHES], ids=["drain", "boundary", "switch"]
)


def joiners(job: Job) -> dict[int, str]:
    assert job.change is not None
    return dict(job.change.joiners)


def stage(job: Job) -> Stage:
    assert job.change is not None
    return job.change.stage


# --- one machine ----------------------------------------------------------------------------------


def test_a_lost_machine_is_fenced_and_everybody_left_is_interrupted() -> None:
    _, effects = decide(RUNNING, lost("m2"))
    assert kinds(effects) == [
        ("", "Fence"),
        ("m1", "Interrupt"),
        ("m3", "Interrupt"),
        ("m4", "Interrupt"),
        ("m4", "Bind"),
    ]
    assert {order.epoch for order in orders(effects, m.Interrupt).values()} == {2}
    assert orders(effects, m.Bind)["m4"].slot == 1


def test_the_verdict_waits_for_every_survivor_and_every_keeper() -> None:
    for missing in range(len(DRAINED) - 1):
        facts = [fact for i, fact in enumerate(DRAINED) if i != missing]
        job, effects = after(DRAINS, *facts)
        assert (stage(job), effects) == (Stage.DRAIN, ())


def test_the_verdict_waits_for_no_standby_that_keeps_nothing() -> None:
    """A standby that is stuck, or cut off from the controller alone, must not hold all ranks up."""
    job, effects = after(DRAINS, *DRAINED[:-1])
    assert sorted(orders(effects, m.Verdict)) == ["m1", "m3"]
    assert decide(job, DRAINED[-1])[1] == ()


def test_keepers_of_a_switchover_that_failed_are_waited_for_as_well() -> None:
    """Some ranks may have put their record with the new keeper, some not."""
    job, _ = after(RECOVERY_SWITCHES, interrupted("m3", 2, 2))
    assert holding(job) == {"m1", "m2", "m3", "m4"}
    kept = {1: [8]}
    job, _ = after(job, position("m1", 0, 3), position("m3", 2, 3), vault("m1", 3))
    job, _ = after(job, vault("m3", 3, kept))
    assert stage(job) is Stage.DRAIN, "ranks were told of m4 as a keeper"
    assert stage(decide(job, vault("m4", 3))[0]) is Stage.BOUNDARY


def test_the_verdict_goes_to_the_survivors() -> None:
    job, effects = after(DRAINS, *DRAINED)
    assert kinds(effects) == [("m1", "Verdict"), ("m3", "Verdict")]
    assert orders(effects, m.Verdict)["m1"] == m.Verdict(epoch=2, committed=7)
    assert (stage(job), job.committed) == (Stage.BOUNDARY, 7)


def test_where_no_verdict_can_be_given_a_young_job_begins_anew() -> None:
    facts = [vault("m3", 2) if fact == DRAINED[3] else fact for fact in DRAINED]
    job, effects = after(DRAINS, *facts)
    assert not [one for one in effects if isinstance(one, effects_room.End)]
    assert "the record of rank 1 for step 8" in job.incidents[-1].why_rung


def test_the_switch_waits_for_boundary_and_joiner_in_any_order() -> None:
    job, effects = after(BOUNDARY, *AT_BOUNDARY)
    assert effects == ()
    _, effects = decide(job, parked("m4", 1, 2))
    assert sorted(orders(effects, m.Switch)) == ["m1", "m3", "m4"]
    job, effects = after(BOUNDARY, parked("m4", 1, 2), AT_BOUNDARY[0])
    assert effects == ()
    _, effects = decide(job, AT_BOUNDARY[1])
    assert sorted(orders(effects, m.Switch)) == ["m1", "m3", "m4"]


def test_a_joiner_may_be_parked_before_the_verdict() -> None:
    job, effects = after(DRAINS, parked("m4", 1, 2), *DRAINED)
    assert not orders(effects, m.Switch)
    _, effects = after(job, *AT_BOUNDARY)
    assert orders(effects, m.Switch)


def test_the_joiner_takes_state_from_a_replica_and_its_record_from_a_vault() -> None:
    _, effects = after(BOUNDARY, *AT_BOUNDARY, parked("m4", 1, 2))
    switches = orders(effects, m.Switch)
    order = switches["m1"]
    assert order.sources == {1: [m.Source(2, "m3/0"), m.Source(0, "m1/0")]}
    assert order.records == {1: ["vault-m3"]}
    buddies = {name: its.buddies for name, its in switches.items()}
    assert buddies == {"m1": {0: "vault-m4"}, "m4": {1: "vault-m3"}, "m3": {2: "vault-m1"}}
    assert (order.committed, order.closing) == (7, False)


def test_a_vault_that_was_lost_after_the_verdict_gives_no_record() -> None:
    job, _ = after(running(standbys=2), lost("m2"), vault("m4", 2, {1: [8]}), *DRAINED[:-1])
    _, effects = after(job, lost("m4"), *AT_BOUNDARY, parked("m5", 1, 2))
    assert orders(effects, m.Switch)["m5"].records == {1: ["vault-m3"]}


def test_a_record_that_was_lost_after_the_verdict_ends_the_job() -> None:
    vaults = {**BOUNDARY.change.vaults, "m3": {}} if BOUNDARY.change else {}
    assert BOUNDARY.change is not None
    job = replace(BOUNDARY, change=replace(BOUNDARY.change, vaults=vaults))
    _, effects = after(job, *AT_BOUNDARY, parked("m4", 1, 2))
    words = "the record of rank 1 for step 8 is on no machine that lives"
    assert words in ended(effects).text


@pytest.mark.parametrize("late", range(3))
@pytest.mark.parametrize("through", [(), (finished("m1", 0, step=7),)], ids=["trains", "ends"])
def test_nobody_goes_before_every_rank_has_exchanged_its_members(
    late: int, through: tuple[WorkerSaid, ...]
) -> None:
    """One whose script is over, too, as long as its process is there."""
    last = switched(("m1", "m4", "m3")[late], late, 2)
    others = [loaded("m4", 1, 2)]
    others += [switched(n, r, 2) for r, n in enumerate(("m1", "m4", "m3")) if r != late]
    up_to = (*through, lost("m2"), *DRAINED, *AT_BOUNDARY, parked("m4", 1, 2))
    job, effects = after(RUNNING, *up_to, *others, *others)
    assert not orders(effects, m.Go)
    assert orders(decide(job, last)[1], m.Go).keys() == {"m1", "m3", "m4"}


def test_a_state_that_no_survivor_holds_ends_the_job() -> None:
    job, _ = decide(RUNNING, recorded("m2", 1, digest="shard"))
    _, effects = after(job, lost("m2"), *DRAINED, *AT_BOUNDARY, parked("m4", 1, 2))
    assert "no other rank holds the state of rank 1" in ended(effects).text


def test_go_puts_the_joiner_in_force() -> None:
    job, effects = after(RECOVERY_SWITCHES, *MOVE_ALL_SWITCHED)
    seated = ("m1", "m4", "m3")
    assert kinds(effects) == [(n, order) for order in ("Go", "KeepSnapshots") for n in seated]
    assert (job.seats, job.epoch, job.change) == (seated, 2, None)
    assert job.incidents[0].certificates == (certificate(1),)


def test_all_ranks_of_a_machine_are_taken_together() -> None:
    job, effects = decide(running(nproc=2), lost("m2"))
    job, _ = after(job, *(position(f"m{r // 2 + 1}", r, 2) for r in (0, 1, 4, 5)))
    job, _ = after(job, vault("m1", 2), vault("m3", 2, {2: [8], 3: [8]}), vault("m4", 2))
    job, _ = after(job, *(at_boundary(f"m{r // 2 + 1}", r, 2) for r in (0, 1, 4, 5)))
    job, effects = decide(job, parked("m4", 2, 2))
    assert effects == ()
    _, effects = decide(job, parked("m4", 3, 2, local_rank=1))
    first = {r: held[0] for r, held in orders(effects, m.Switch)["m4"].sources.items()}
    assert first == {2: m.Source(4, "m3/0"), 3: m.Source(5, "m3/1")}


def test_a_second_report_of_the_same_loss_changes_nothing() -> None:
    assert decide(DRAINS, lost("m2")) == (DRAINS, ())


# --- crashes and links ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"), [(-9, "signal 9"), (3, "exit status 3"), (0, "exit status 0")]
)
def test_a_worker_that_ends_unannounced_is_a_crash_whatever_its_code(code: int, words: str) -> None:
    job, effects = decide(RUNNING, exited("m2", code))
    assert joiners(job) == {1: "m4"}
    assert job.incidents[0].cause == f"worker 0 of m2 ended ({words})"
    assert sorted(orders(effects, m.Interrupt)) == ["m1", "m2", "m3", "m4"]


def test_the_machine_of_a_crashed_worker_gets_fresh_ones_after_the_recovery() -> None:
    job, _ = decide(RUNNING, exited("m2"))
    assert job.machines["m2"].state is MachineState.DOWN
    job, _ = after(job, *DRAINED, vault("m2", 2), *AT_BOUNDARY, parked("m4", 1, 2))
    job, effects = after(job, *MOVE_ALL_SWITCHED)
    assert kinds(effects)[-1] == ("m2", "StartWorkers")
    _, effects = decide(job, up("m2"))
    assert kinds(effects) == [("m2", "WarmUp")]


def test_other_workers_of_a_crashed_machine_end_without_further_notice() -> None:
    job, _ = decide(running(nproc=2), exited("m2"))
    assert decide(job, exited("m2", local_rank=1)) == (job, ())


def test_without_a_standby_a_crashed_machine_takes_its_own_ranks_again() -> None:
    job, effects = decide(running(standbys=0), exited("m2"))
    assert joiners(job) == {1: "m2"}
    assert kinds(effects)[-1] == ("m2", "StartWorkers")
    job, effects = decide(job, up("m2"))
    assert kinds(effects) == [("m2", "Bind")]


def test_a_respawned_machine_trains_again_in_its_own_seat() -> None:
    job, _ = after(running(standbys=0), exited("m2"), up("m2"), parked("m2", 1, 2))
    job, effects = after(job, *DRAINED[:4], vault("m2", 2))
    assert sorted(orders(effects, m.Verdict)) == ["m1", "m3"]
    job, _ = after(job, *AT_BOUNDARY)
    job, effects = after(job, *(switched(f"m{rank + 1}", rank, 2) for rank in range(3)))
    assert kinds(effects) == [(n, order) for order in ("Go", "KeepSnapshots") for n in SEATS]
    assert (job.seats, job.machines["m2"].state) == (SEATS, MachineState.ACTIVE)


def test_a_loss_while_a_machine_is_respawned_recovers_both() -> None:
    job, _ = after(running(standbys=0), exited("m2"))
    job, effects = decide(job, exited("m3"))
    assert joiners(job) == {1: "m2", 2: "m3"}
    job, effects = after(job, up("m2"), up("m3"))
    assert [(name, order.slot) for name, order in orders(effects, m.Bind).items()] == [
        ("m2", 1),
        ("m3", 2),
    ]


def test_a_broken_link_is_retried_with_the_same_machines() -> None:
    job, effects = decide(RUNNING, interrupted("m1", 0, 1))
    assert kinds(effects) == [(f"m{i}", "Interrupt") for i in range(1, 5)]
    assert joiners(job) == {}
    facts = [position(f"m{rank + 1}", rank, 2) for rank in range(3)]
    job, effects = after(job, *facts, *(vault(f"m{i}", 2) for i in range(1, 5)))
    assert sorted(orders(effects, m.Verdict)) == list(SEATS)
    job, effects = after(job, *(at_boundary(f"m{rank + 1}", rank, 2) for rank in range(3)))
    assert sorted(orders(effects, m.Switch)) == list(SEATS)
    job, effects = after(job, *(switched(f"m{rank + 1}", rank, 2) for rank in range(3)))
    assert kinds(effects) == [("m1", "Go"), ("m2", "Go"), ("m3", "Go")]


def test_a_link_that_breaks_once_more_is_mended_with_the_first_steps_after_that() -> None:
    job, _ = decide(RUNNING, interrupted("m1", 0, 1))
    for epoch, made in ((2, (0,)), (3, (1, 2))):
        job, _ = after(
            job,
            *(position(name, r, epoch, 5 + epoch) for r, name in enumerate(SEATS)),
            *(vault(f"m{i}", epoch) for i in range(1, 5)),
            *(at_boundary(name, r, epoch, 5 + epoch) for r, name in enumerate(SEATS)),
            *(switched(name, r, epoch) for r, name in enumerate(SEATS)),
            *(committed(SEATS[r], r, epoch, 6 + epoch) for r in made),
        )
        if epoch == 2:
            job, _ = decide(job, interrupted("m2", 1, 2))
    (incident,) = job.incidents
    assert incident.outcome is Outcome.OPEN
    job, _ = decide(job, committed("m1", 0, 3, 9))
    assert job.incidents[0].outcome is Outcome.DONE


def test_more_reports_of_the_same_broken_link_are_no_news() -> None:
    job, _ = decide(RUNNING, interrupted("m1", 0, 1))
    assert decide(job, interrupted("m3", 2, 1)) == (job, ())
    assert decide(job, interrupted("m3", 2, 2)) == (job, ())


def test_a_report_about_an_older_epoch_is_no_news() -> None:
    assert decide(RECOVERED, interrupted("m1", 0, 1)) == (RECOVERED, ())


def test_the_machine_behind_a_broken_link_shows_later_and_is_replaced() -> None:
    job, _ = decide(RUNNING, interrupted("m1", 0, 1))
    job, _ = decide(job, lost("m2"))
    assert (joiners(job), job.epoch_last) == ({1: "m4"}, 3)
    (incident,) = job.incidents  # The loss explains the broken link: no incident of its own.
    assert (incident.machine, incident.joiner, incident.ranks) == ("m2", "m4", (1,))
    assert (incident.epoch, incident.outcome) == (3, Outcome.OPEN)


# --- the next loss in the middle of it ------------------------------------------------------------


@every_stage
def test_another_machine_lost_keeps_the_first_joiner(job: Job) -> None:
    job, _ = after(job, joined("m5", standby=True), up("m5"))
    job, effects = decide(job, lost("m3"))
    assert joiners(job) == {1: "m4", 2: "m5"}
    assert (stage(job), job.epoch_last) == (Stage.DRAIN, 3)
    assert list(orders(effects, m.Bind)) == ["m5"]


@every_stage
def test_another_machine_lost_with_no_standby_left_ends_the_job(job: Job) -> None:
    job, effects = decide(job, lost("m3"))
    text = ended(effects).text
    assert text.startswith("m3 was lost: link broke; 2 machines must be replaced and 1 standby is")
    assert "more --standbys" in text
    assert [i.outcome for i in job.incidents] == [Outcome.FAILED] * len(job.incidents)


@every_stage
def test_a_lost_joiner_is_replaced_by_the_next_standby(job: Job) -> None:
    job, _ = after(job, joined("m5", standby=True), up("m5"))
    job, effects = decide(job, lost("m4"))
    assert joiners(job) == {1: "m5"}
    assert list(orders(effects, m.Bind)) == ["m5"]


def test_a_joiner_that_crashes_is_started_again_if_there_is_no_other() -> None:
    job, effects = decide(DRAINS, exited("m4"))
    assert joiners(job) == {1: "m4"}
    assert ("m4", "StartWorkers") in kinds(effects)
    _, effects = decide(job, up("m4"))
    assert kinds(effects) == [("m4", "Bind")]


def test_a_joiner_whose_sandbox_fails_is_not_taken_again() -> None:
    job, effects = decide(DRAINS, said("m4", m.SandboxFailed(rank=1, reason="it raised")))
    assert ended(effects).text.startswith("m4 cannot take the ranks: it raised; 1 machine must")
    job, _ = after(DRAINS, joined("m5", standby=True))
    job, effects = decide(job, said("m4", m.SandboxFailed(rank=1, reason="it raised")))
    assert joiners(job) == {1: "m5"}
    assert job.incidents[-1].marks["heard"] == 40


def test_facts_of_the_epoch_before_are_ignored_after_a_second_loss() -> None:
    job, _ = after(running(standbys=2), lost("m2"))
    job, _ = decide(job, lost("m3"))
    for late in (*DRAINED, *AT_BOUNDARY, *MOVE_ALL_SWITCHED):
        if getattr(late, "machine", "") != "m3":
            assert decide(job, late) == (job, ())


def test_a_parked_joiner_stays_parked_through_a_second_loss() -> None:
    job, _ = after(running(standbys=2), lost("m2"), parked("m5", 1, 2), lost("m3"))
    job, _ = after(job, vault("m4", 3, {1: [8]}), position("m1", 0, 3), vault("m1", 3, {2: [8]}))
    job, effects = after(job, vault("m5", 3), parked("m4", 2, 3), at_boundary("m1", 0, 3))
    switch = orders(effects, m.Switch)["m4"]
    assert switch.sources == {1: [m.Source(0, "m1/0")], 2: [m.Source(0, "m1/0")]}


def test_a_machine_that_joins_during_the_drain_is_asked_like_all_others() -> None:
    """From then on its vault keeps nothing for ranks of the epoch before. It is not waited for."""
    job, effects = decide(DRAINS, joined("m5", standby=True))
    assert orders(effects, m.Interrupt) == {"m5": m.Interrupt(epoch=2)}
    _, effects = after(job, *DRAINED)
    assert sorted(orders(effects, m.Verdict)) == ["m1", "m3"]


def test_a_machine_that_does_not_reach_the_store_goes_where_others_can_take_its_ranks() -> None:
    """Only the controller's host has a store, and a neighbour carries what the machine says."""
    switches = mends_a_link(running(standbys=2))
    assert stage(switches) is Stage.SWITCH
    storeless = m.Interrupted(rank=0, epoch=2, reason="timed out", storeless=True)
    job, effects = after(switches, said("m1", storeless))
    assert ("", "Fence") in kinds(effects)
    assert "m1" not in job.machines
    assert job.incidents[-1].cause == "m1 does not reach the job's store"


def test_it_is_not_given_up_where_the_job_would_end() -> None:
    storeless = m.Interrupted(rank=2, epoch=2, reason="timed out", storeless=True)
    job, effects = after(RECOVERY_SWITCHES, said("m3", storeless))
    assert "m3" in job.machines
    assert orders(effects, m.Interrupt), "all try again"


def test_a_standby_is_warmed_only_after_the_recovery() -> None:
    job, effects = after(RECOVERY_SWITCHES, joined("m5", standby=True), up("m5"))
    assert not orders(effects, m.WarmUp)
    _, effects = after(job, *MOVE_ALL_SWITCHED)
    assert kinds(effects)[-1] == ("m5", "WarmUp")


def test_a_loss_right_after_the_recovery_is_a_recovery_of_its_own() -> None:
    job, _ = after(RECOVERED, joined("m5", standby=True), up("m5"), warm("m5"))
    job, _ = decide(job, lost("m4"))
    assert (joiners(job), job.epoch_last) == ({1: "m5"}, 3)
    assert [i.outcome for i in job.incidents] == [Outcome.SUPERSEDED, Outcome.OPEN]


def test_a_machine_that_has_taken_ranks_is_forgiven_its_crashes() -> None:
    job, _ = after(RUNNING, exited("m4"), up("m4"), warm("m4"), lost("m2"), *DRAINED)
    assert job.machines["m4"].crashes == 1
    job, _ = after(job, *AT_BOUNDARY, parked("m4", 1, 2), *MOVE_ALL_SWITCHED)
    assert job.machines["m4"].crashes == 0


# --- crash loops ----------------------------------------------------------------------------------


def test_recoveries_without_a_commit_between_are_limited() -> None:
    job = running(standbys=0)
    for _ in range(RETRIES_MAX):
        job, _ = after(job, exited("m2"), up("m2"))
    assert job.phase is Phase.RUNNING
    _, effects = decide(job, exited("m2"))
    assert f"that was recovery {RETRIES_MAX} in a row without a committed step" in (
        ended(effects).text
    )


def test_a_commit_ends_the_count() -> None:
    job, _ = decide(replace(RECOVERED, retries=3), committed("m1", 0, 2))
    assert job.retries == 0


# --- the end of the script ------------------------------------------------------------------------


def test_the_first_rank_to_finish_tells_everybody() -> None:
    job, effects = decide(RUNNING, finished("m1", 0))
    assert [order for order in orders(effects, m.Ending).values()] == [m.Ending(rank=0, step=9)] * 3
    assert decide(job, finished("m2", 1))[1] == ()


def test_a_script_that_never_attached_may_end_on_each_rank_when_it_likes() -> None:
    fact = m.Finished(rank=0, step=0, code=0, digest="", attached=False)
    assert decide(BEGUN, said("m1", fact))[1] == ()


def test_a_script_that_never_attached_is_told_what_it_went_without() -> None:
    fact = m.Finished(rank=0, step=0, code=0, digest="", attached=False)
    job, _ = after(begun(machines=1, standbys=0), said("m1", fact))
    _, effects = decide(job, exited("m1", 0))
    assert ended(effects).code == 0
    assert "never called trainmover.attach()" in ended(effects).text


def test_a_script_without_a_step_is_told_what_it_went_without() -> None:
    job, _ = after(begun(machines=1, standbys=0), said("m1", m.Attached(rank=0)))
    _, effects = after(job, finished("m1", 0, step=0), exited("m1", 0))
    assert ended(effects).code == 0
    assert "ran no function marked @job.step" in ended(effects).text


def test_the_job_ends_well_when_every_rank_has_finished_and_left() -> None:
    job, effects = after(RUNNING, *(finished(f"m{rank + 1}", rank) for rank in range(3)))
    assert kinds(effects)[-3:] == [("m1", "Exit"), ("m2", "Exit"), ("m3", "Exit")]
    assert job.phase is Phase.ENDING
    job, effects = after(job, exited("m1", 0), exited("m2", 0))
    assert effects == ()
    job, effects = decide(job, exited("m3", 0))
    assert (ended(effects).code, ended(effects).text, job.phase) == (0, "", Phase.ENDED)


def test_a_machine_lost_after_every_rank_has_finished_changes_nothing_of_the_result() -> None:
    job, _ = after(RUNNING, *(finished(f"m{rank + 1}", rank) for rank in range(3)))
    job, effects = after(job, exited("m1", 0), lost("m2"), exited("m3", 0))
    assert ended(effects).code == 0


def test_a_machine_that_returns_by_the_same_name_in_the_end_is_not_waited_for() -> None:
    job, _ = after(RUNNING, *(finished(f"m{rank + 1}", rank) for rank in range(3)))
    job, _ = after(job, lost("m2"), joined("m2", standby=True))
    _, effects = after(job, exited("m1", 0), exited("m3", 0))
    assert ended(effects).code == 0


def test_a_script_that_exits_nonzero_ends_the_job_with_its_code() -> None:
    _, effects = decide(RUNNING, finished("m2", 1, code=3))
    assert ended(effects).code == 3
    assert ended(effects).text.startswith("The script ended with exit status 3 on rank 1.\n")


def test_a_script_that_raises_ends_the_job_with_its_traceback() -> None:
    _, effects = decide(RUNNING, raised("m2", 1))
    assert ended(effects).code == 1
    assert ended(effects).text.startswith("Rank 1 raised ValueError: no.\nThe job has ended")
    assert ended(effects).text.endswith("\nTraceback")


def test_a_rank_that_went_on_after_another_ended_is_named() -> None:
    job, _ = decide(RUNNING, finished("m1", 0))
    _, effects = decide(job, said("m2", m.WentOn(rank=1, step=10)))
    assert ended(effects).text.startswith(
        "The script of rank 0 ended after step 9, but rank 1 went on to step 10."
    )


def test_a_finished_fact_of_a_machine_without_that_rank_is_ignored() -> None:
    assert decide(RUNNING, finished("m4", 1)) == (RUNNING, ())
    assert decide(RUNNING, finished("m1", 1)) == (RUNNING, ())


def test_what_a_process_says_that_is_being_replaced_is_ignored() -> None:
    early = said("m1", m.Attached(rank=0))
    assert decide(GATHERING, early) == (GATHERING, ())
    assert decide(BEGUN, early)[0].attached


def test_a_loss_while_others_have_finished_builds_no_groups_again() -> None:
    job, _ = after(RUNNING, finished("m1", 0, step=7), lost("m2"), *DRAINED)
    _, effects = after(job, *AT_BOUNDARY, parked("m4", 1, 2))
    assert orders(effects, m.Switch)["m4"].closing


def test_a_finished_rank_whose_process_is_gone_is_not_waited_for() -> None:
    job, _ = after(RUNNING, finished("m1", 0, step=7), exited("m1"), lost("m2"))
    _, effects = after(job, *DRAINED[1:])
    assert orders(effects, m.Verdict)


def test_a_machine_that_returns_by_the_same_name_is_not_asked_for_the_ranks_it_had() -> None:
    job, _ = after(RUNNING, finished("m1", 0, step=7), lost("m1"), joined("m1", standby=True))
    _, effects = after(job, lost("m2"), vault("m1", 2), *DRAINED[1:])
    assert set(orders(effects, m.Verdict)) == {"m1", "m3"}


def test_a_script_that_ends_in_a_recovery_closes_the_incident() -> None:
    job, _ = after(RUNNING, finished("m1", 0), finished("m3", 2), interrupted("m2", 1, 1))
    job, _ = decide(job, finished("m2", 1))
    assert (job.phase, job.change) == (Phase.ENDING, None)
    assert job.incidents[0].kind is Kind.RECOVERY
    assert job.incidents[0].outcome is Outcome.DONE


def test_the_incident_keeps_what_the_verdict_was_made_of() -> None:
    job, _ = after(DRAINS, *DRAINED)
    (incident,) = job.incidents
    assert sorted(incident.positions) == [0, 2]
    assert incident.held.keys() == {1}
    assert incident.step == job.committed


@every_stage
def test_a_joiner_that_gives_up_its_run_is_replaced_by_another(job: Job) -> None:
    job, _ = after(job, joined("m5", standby=True), up("m5"))
    job, effects = after(job, failed("m4", 1, "it runs in circles"))
    assert joiners(job) == {1: "m5"}
    assert orders(effects, m.Interrupt)["m1"].epoch == orders(effects, m.Bind)["m5"].epoch == 3
    assert job.machines["m4"].state is MachineState.COLD


def test_a_joiner_is_told_what_runs_have_taken_on_its_machine() -> None:
    _, effects = decide(RUNNING, lost("m2"))
    attests = RUNNING.machines["m4"].attests.values()
    known = max(max(one.warm_ms, one.run_ms or 0) for one in attests)
    assert orders(effects, m.Bind)["m4"].known_ms == known > 0


def test_the_word_of_a_machine_that_is_gone_stands_for_nobody_elses() -> None:
    """As many have said what they hold as there are machines; one that lives has not."""
    job, _ = after(running(standbys=2), lost("m2"))
    said = [position("m1", 0, 2), position("m3", 2, 2), vault("m4", 2)]
    job, effects = after(job, *said, lost("m4"), vault("m1", 2, {2: [8]}), vault("m5", 2))
    assert not orders(effects, m.Verdict)
    _, effects = after(job, vault("m3", 2, {1: [8]}))
    assert set(orders(effects, m.Verdict)) == {"m1", "m3"}


def test_the_position_of_a_rank_that_is_lost_stands_for_nobody_elses() -> None:
    job, _ = after(running(standbys=2), lost("m2"), position("m1", 0, 2))
    job, _ = after(job, lost("m1"))
    epoch = job.epoch_last
    held = [vault(name, epoch, {0: [8], 1: [8]}) for name in ("m3", "m4", "m5")]
    job, effects = after(job, *held)
    assert not orders(effects, m.Verdict)
    _, effects = after(job, position("m3", 2, epoch))
    assert orders(effects, m.Verdict)
