"""From machines to a running job with warm standbys; and the ways in which it never gets there."""

from dataclasses import replace

import pytest
from jobs import (
    BEGUN,
    GATHERING,
    RUNNING,
    after,
    begun,
    ended,
    exited,
    finished,
    gathering,
    hold_all,
    joined,
    kinds,
    lost,
    orders,
    recorded,
    running,
    said,
    up,
    warm,
)

from trainmover.controller import Job, decide
from trainmover.controller.compare.known import Comparison
from trainmover.controller.effects import Send
from trainmover.controller.events import ControllerReturned, StopRequested
from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.start import start_again
from trainmover.controller.state import Cut, MachineState, Phase
from trainmover.protocol import messages as m

ALL_UP = tuple(up(name) for name in ("m1", "m2", "m3", "m4"))


def test_a_machine_that_joins_starts_workers_at_once() -> None:
    job, effects = decide(Job(m.JobSpec(run_id="r", argv=["x"])), joined("m1"))
    assert effects == (Send("m1", m.StartWorkers(epoch=0, restarts=0)),)
    assert job.machines["m1"].state is MachineState.STARTING


def test_nothing_runs_until_every_worker_is_up() -> None:
    job, effects = after(GATHERING, *ALL_UP[:2])
    assert job.phase is Phase.GATHERING
    assert effects == ()


def test_where_a_torn_journal_has_forgotten_all_machines_they_are_taken_as_they_come() -> None:
    """They come back as standbys, since they have been in the job; there is nobody else."""
    anew = after(Job(GATHERING.spec), ControllerReturned(at_us=1, cut=True))[0]
    three = [joined(name, standby=True) for name in ("m1", "m2", "m3")]
    job, _ = after(anew, *three, *ALL_UP[:3])
    assert job.phase is Phase.GATHERING, "one that holds ranks may still come"
    job, _ = after(job, joined("m4", standby=True), up("m4"))
    assert job.phase is not Phase.GATHERING


def test_all_workers_of_a_machine_must_be_up() -> None:
    job, effects = after(gathering(machines=1, standbys=0, nproc=2), up("m1", local_rank=1))
    assert effects == ()
    job, effects = decide(job, up("m1"))
    assert orders(effects, m.RunRank)["m1"].slot == 0


def test_ranks_follow_the_natural_order_of_names() -> None:
    job = gathering(machines=11, standbys=0)
    names = sorted(job.machines)  # m1, m10, m11, m2, ...
    job, effects = after(job, *(up(name) for name in names))
    slots = {name: order.slot for name, order in orders(effects, m.RunRank).items()}
    assert slots == {f"m{i + 1}": i for i in range(11)}
    assert job.seats[9:] == ("m10", "m11")


def test_each_rank_keeps_its_record_with_the_next_machine() -> None:
    _, effects = after(GATHERING, *ALL_UP)
    buddies = {name: order.buddies for name, order in orders(effects, m.RunRank).items()}
    assert buddies == {"m1": {0: "vault-m2"}, "m2": {1: "vault-m3"}, "m3": {2: "vault-m1"}}


def test_a_standby_does_not_take_part_in_the_place_of_a_slow_machine() -> None:
    job, _ = after(GATHERING, up("m4"), up("m1"), up("m2"))
    assert job.phase is Phase.GATHERING
    job, effects = decide(job, up("m3"))
    assert sorted(orders(effects, m.RunRank)) == ["m1", "m2", "m3"]


def test_a_standby_does_not_take_part_in_the_place_of_a_machine_yet_to_join() -> None:
    early = (joined("m1"), joined("m2"), joined("m4", standby=True))
    job, _ = after(Job(RUNNING.spec), *early, up("m1"), up("m2"), up("m4"))
    assert job.phase is Phase.GATHERING
    job, _ = after(job, joined("m3"), up("m3"))
    assert job.seats == ("m1", "m2", "m3")


def test_a_standby_does_not_take_part_because_of_its_name() -> None:
    job, _ = after(gathering(standbys=0), joined("m0", standby=True), up("m0"), *ALL_UP[:3])
    assert job.seats == ("m1", "m2", "m3")


def test_a_standby_takes_the_place_of_an_early_loss() -> None:
    job, effects = after(GATHERING, lost("m2"), *(up(name) for name in ("m1", "m3", "m4")))
    assert job.seats == ("m1", "m3", "m4")
    assert sorted(orders(effects, m.RunRank)) == ["m1", "m3", "m4"]


def test_a_standby_of_another_torch_takes_the_place_of_no_early_loss() -> None:
    others = gathering(standbys=2)
    up_elsewhere = up("m4", torch="1.9")
    job, effects = after(others, lost("m2"), up("m1"), up("m3"), up_elsewhere)
    assert (job.phase, orders(effects, m.RunRank)) == (Phase.GATHERING, {})
    assert after(job, up("m5"))[0].seats == ("m1", "m3", "m5")
    job, effects = after(job, up("m5", torch="1.9"))
    assert job.phase is Phase.ENDED
    assert "m4 (torch 1.9), m5 (torch 1.9) cannot stand in" in ended(effects).text


def test_more_early_losses_than_standbys_end_the_job() -> None:
    job, effects = after(GATHERING, lost("m2"), lost("m3"))
    assert job.phase is Phase.ENDED
    assert ended(effects).code == 1
    assert ended(effects).text.startswith("m3 was lost before the job began: link broke.")
    assert "2 machines are left; 3 are needed" in ended(effects).text


def test_a_worker_that_ends_before_the_job_began_ends_it() -> None:
    _, effects = decide(GATHERING, exited("m1", 1))
    assert ended(effects).code == 1
    assert "worker 0 of m1 ended (exit status 1) before the script began" in ended(effects).text


def test_standbys_warm_up_only_when_every_rank_is_recorded() -> None:
    job, effects = after(BEGUN, recorded("m1", 0), recorded("m2", 1))
    assert effects == ()
    job, effects = decide(job, recorded("m3", 2))
    keep = [(name, "KeepSnapshots") for name in job.seats]
    assert kinds(effects) == [*keep, ("m4", "WarmUp")]
    assert job.machines["m4"].state is MachineState.WARMING


def test_a_warm_up_gets_the_places_of_its_records() -> None:
    _, effects = after(BEGUN, *(recorded(f"m{rank + 1}", rank) for rank in range(3)))
    records = orders(effects, m.WarmUp)["m4"].records
    assert {rank: [s.vaults[0] for s in stored] for rank, stored in records.items()} == {
        0: ["vault-m2", "vault-m3"]
    }


def test_a_standby_is_warm_when_all_its_workers_are() -> None:
    job = begun(machines=1, standbys=1, nproc=2)
    job, _ = after(job, recorded("m1", 0), recorded("m1", 1, local_rank=1), warm("m2"))
    assert job.machines["m2"].state is MachineState.WARMING
    job, effects = decide(job, warm("m2", local_rank=1))
    assert kinds(effects) == [("m2", "Hold")]
    assert hold_all(job).machines["m2"].state is MachineState.WARM


def test_a_machine_that_joins_later_becomes_a_standby() -> None:
    job, effects = after(RUNNING, joined("m5", standby=True), up("m5"))
    assert kinds(effects) == [("m5", "StartWorkers"), ("m5", "WarmUp")]
    assert job.seats == RUNNING.seats


def test_a_machine_that_joins_when_a_script_has_ended_is_not_warmed() -> None:
    job, effects = after(RUNNING, finished("m1", 0), joined("m5", standby=True), up("m5"))
    assert not orders(effects, m.WarmUp)
    assert job.machines["m5"].state is MachineState.IDLE


def test_a_failed_sandbox_makes_a_machine_cold_and_leaves_the_job_alone() -> None:
    job, effects = decide(RUNNING, said("m4", m.SandboxFailed(rank=0, reason="other calls")))
    assert effects == ()
    assert (job.machines["m4"].state, job.machines["m4"].note) == (MachineState.COLD, "other calls")


def test_a_standby_that_crashes_gets_fresh_workers_and_warms_up_again() -> None:
    job, effects = after(RUNNING, exited("m4"), up("m4"))
    assert kinds(effects) == [("m4", "StartWorkers"), ("m4", "WarmUp")]
    assert job.machines["m4"].crashes == 1


def test_a_standby_that_crashes_again_and_again_becomes_cold() -> None:
    job, effects = after(RUNNING, exited("m4"), up("m4"), exited("m4"), up("m4"), exited("m4"))
    assert kinds(effects).count(("m4", "StartWorkers")) == 2
    assert job.machines["m4"].state is MachineState.COLD
    assert "crashed 3 times" in job.machines["m4"].note


def test_a_lost_standby_costs_nothing() -> None:
    job, effects = decide(RUNNING, lost("m4"))
    assert kinds(effects) == [("", "Fence")]
    assert (job.change, job.incidents, job.epoch_last) == (None, (), 1)


# --- again from nothing (rung 3) ------------------------------------------------------------------


def test_a_loss_before_the_first_steps_are_recorded_starts_everything_again() -> None:
    job, effects = decide(BEGUN, lost("m2"))
    assert job.phase is Phase.STARTING
    assert job.seats == ("m1", "m4", "m3")
    starts = orders(effects, m.StartWorkers)
    assert sorted(starts) == ["m1", "m3", "m4"]
    assert {order.restarts for order in starts.values()} == {1}


def test_after_a_restart_the_ranks_run_in_a_new_epoch() -> None:
    job, _ = decide(BEGUN, lost("m2"))
    job, effects = after(job, up("m1"), up("m3"), up("m4"))
    epochs = {order.epoch for order in orders(effects, m.RunRank).values()}
    assert epochs == {job.epoch} == {job.incidents[0].epoch} == {3}
    assert job.epoch > BEGUN.epoch_last


def test_a_restart_says_its_rung_and_why() -> None:
    incident = decide(BEGUN, lost("m2", at_us=9, heard_us=5))[0].incidents[0]
    assert (incident.rung, incident.why_rung) == (3, "no training loop was seen yet")
    assert (incident.joiner, incident.ranks) == ("m4", (1,))
    assert incident.marks == {"heard": 5, "detect": 9}
    attached, _ = decide(BEGUN, said("m1", m.Attached(rank=0)))
    incident = decide(attached, lost("m2"))[0].incidents[0]
    assert incident.why_rung == "the first steps were not recorded yet"


def test_a_restart_forgets_what_the_script_had_done() -> None:
    job, _ = after(BEGUN, said("m1", m.Attached(rank=0)), recorded("m1", 0))
    job, _ = after(job, finished("m1", 0), lost("m2"))
    assert (job.attached, job.recorded, job.finished) == (frozenset(), {}, {})
    assert (job.committed, job.restarts) == (0, 1)


def test_a_crash_with_no_standby_left_restarts_on_the_same_machine() -> None:
    job, effects = decide(begun(standbys=0), exited("m2"))
    assert job.seats == ("m1", "m2", "m3")
    assert sorted(orders(effects, m.StartWorkers)) == ["m1", "m2", "m3"]


def test_restarts_are_counted_and_limited() -> None:
    job = begun(standbys=0, restarts_max=2)
    ups = tuple(up(name) for name in ("m1", "m2", "m3"))
    job, effects = after(job, exited("m2"), *ups, exited("m2"), *ups)
    assert (job.phase, job.restarts) == (Phase.RUNNING, 2)
    _, effects = decide(job, exited("m2"))
    end = ended(effects)
    assert "has used its 2 restarts" in end.text
    assert end.code == 1


def test_a_loss_while_starting_again_is_the_next_restart() -> None:
    job, _ = after(begun(standbys=2), lost("m2"), lost("m3"))
    assert job.seats == ("m1", "m4", "m5")
    assert [incident.outcome for incident in job.incidents] == ["superseded", "open"]
    assert "another loss came first" in job.incidents[0].note


def test_a_standby_of_another_torch_takes_no_ranks_where_all_starts_again() -> None:
    """Which it has is known only when its process is up."""
    job, _ = decide(begun(standbys=2), lost("m2"))
    assert job.seats == ("m1", "m4", "m3")
    job, effects = after(job, up("m1"), up("m3"), up("m4", torch="1.9"))
    assert kinds(effects) == [("m5", "StartWorkers")]
    assert job.incidents[-1].joiner == "m5"
    _, effects = decide(job, up("m5"))
    assert sorted(orders(effects, m.RunRank)) == ["m1", "m3", "m5"]


def test_where_no_other_standby_is_left_it_ends_with_both_versions() -> None:
    job, _ = decide(BEGUN, lost("m2"))
    _, effects = after(job, up("m1"), up("m3"), up("m4", torch="1.9"))
    assert "m4: it runs torch 1.9, the job's ranks run torch 2" in ended(effects).text


def test_machines_of_another_torch_than_the_first_do_not_begin() -> None:
    job, effects = after(GATHERING, up("m1"), up("m2", torch="1.9"), up("m3"))
    assert kinds(effects) == [("m4", "StartWorkers")]
    _, effects = decide(job, up("m4"))
    assert sorted(orders(effects, m.RunRank)) == ["m1", "m3", "m4"]


def test_a_restart_without_enough_machines_ends_the_job() -> None:
    _, effects = after(begun(standbys=0), lost("m2"))
    assert ended(effects).text.startswith("m2 was lost: link broke; 1 machine must be replaced")


def test_a_worker_that_dies_before_the_repeated_script_began_ends_the_job() -> None:
    job, _ = decide(BEGUN, lost("m2"))
    _, effects = decide(job, exited("m4", 1))
    assert "before the script began" in ended(effects).text


@pytest.mark.parametrize("job", [GATHERING, BEGUN, RUNNING], ids=["gathering", "begun", "running"])
def test_a_stop_ends_the_job_whatever_it_does(job: Job) -> None:
    job, effects = decide(job, StopRequested(at_us=0, code=130, why="ctrl-c"))
    assert (job.phase, job.code, ended(effects).code) == (Phase.ENDED, 130, 130)
    assert ended(effects).text == job.ended_because == "ctrl-c"


# --- what is still heard of processes that fresh ones replace -------------------------------------


def test_all_workers_of_a_machine_lost_before_the_record_are_one_restart() -> None:
    job, _ = after(begun(nproc=2), exited("m2", pid=1))
    job, effects = after(job, exited("m2", pid=2, local_rank=1), exited("m1", pid=1))
    assert (job.phase, job.restarts, effects) == (Phase.STARTING, 1, ())


def test_all_workers_of_a_machine_lost_at_once_are_one_incident() -> None:
    job = running(nproc=8, machines=2, standbys=0)
    job, _ = after(job, *(exited("m2", local_rank=i, pid=1 + i) for i in range(8)))
    assert (job.code, job.retries, len(job.incidents)) == (None, 1, 1)


def test_a_fresh_process_that_ends_at_once_is_heard() -> None:
    job, _ = after(begun(standbys=0), exited("m2", pid=1))
    _, effects = after(job, exited("m2", pid=77))
    assert "before the script began" in ended(effects).text


@pytest.mark.parametrize(
    "fact",
    [
        m.Finished(rank=0, step=9, code=0, digest="d", attached=True),
        m.Recorded(rank=0, step=3, trace="t", digest="d", bytes=1),
        m.Attached(rank=0),
        m.Raised(rank=0, step=1, error="ValueError", traceback=""),
    ],
)
def test_a_fact_from_before_the_restart_is_late(fact: m.WorkerFact) -> None:
    job, _ = after(begun(), exited("m2", pid=1))
    assert after(job, said("m1", fact)) == (job, ())


def test_who_starts_again_knows_nothing_of_the_run_that_is_given_up() -> None:
    """Least of all a snapshot, which would make a cut out of two runs."""
    snapped = m.Snapped(rank=0, epoch=1, step=5, vault="", bytes=9, cost_us=3, step_us=9)
    cut = Cut(step=4, vaults={}, workers={}, bytes=1, cost_us=1)
    known = {
        "committed": 7, "snapped": Facts({0: snapped}), "cut": cut, "no_snapshots": "no room",
        "snapshot_every": 3, "finished": Facts({0: (7, "d")}), "exited": Ranks([0]),
        "changed": frozenset({("t", "c")}), "comparison": replace(Comparison(), step=5),
    }  # fmt: skip
    job, _ = decide(running(), lost("m2"))
    assert job.change is not None
    job, _ = start_again(replace(job, **known), {1: "m4"}, 1, "nothing is left", redone=2)
    fresh = Job(job.spec)
    assert {name: getattr(job, name) for name in known} == {
        name: getattr(fresh, name) for name in known
    }
    assert (job.recorded, job.attached, job.keepers) == ({}, set(), {})
    assert (job.phase, job.seats) == (Phase.STARTING, ("m1", "m4", "m3"))
