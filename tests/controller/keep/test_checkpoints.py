"""When a checkpoint is written, what makes it one, and how a job goes on from it."""

from dataclasses import replace

import msgspec
from jobs import (
    RUNNING,
    after,
    at_boundary,
    committed,
    ended,
    exited,
    joined,
    loaded,
    lost,
    orders,
    parked,
    running,
    said,
    switched,
    up,
    vault,
)

from trainmover.controller import Job, decide
from trainmover.controller.change.from_disk import without_unusable
from trainmover.controller.effects import Effect, FindCheckpoint, GiveUpCheckpoint, Publish
from trainmover.controller.events import (
    EVENTS,
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
)
from trainmover.controller.keep.checkpoints import tend_checkpoints
from trainmover.controller.state import MachineState, Outcome
from trainmover.ids import Step
from trainmover.protocol import messages as m

SEATED = [("m1", 0), ("m2", 1), ("m3", 2)]
SAVES = replace(
    RUNNING,
    spec=msgspec.structs.replace(RUNNING.spec, checkpoint="/kept", checkpoint_every=10),
)


def snapped(machine: str, rank: int, step: int, epoch: int = 1) -> object:
    fact = m.Snapped(rank=rank, epoch=epoch, step=step, vault="", bytes=9, cost_us=3, step_us=9)
    return said(machine, fact)


def wrote(machine: str, rank: int, step: int = 10, epoch: int = 1, refused: str = "") -> object:
    part = m.Written(f"rank-{rank:05d}.state", 9, "d")
    record = m.Written("first-steps/r", 3, "r") if rank == 0 else None
    fact = m.Wrote(
        rank=rank, epoch=epoch, step=step, state=[] if refused else [part], record=record,
        refused=refused,
    )  # fmt: skip
    return said(machine, fact)


def cut_at(job: Job, step: int) -> tuple[Job, tuple[Effect, ...]]:
    said = (snapped(name, rank, step, job.epoch) for name, rank in SEATED)
    return after(job, *said)  # type: ignore[arg-type]


def written(job: Job, step: int = 10) -> tuple[Job, tuple[Effect, ...]]:
    job, _ = cut_at(job, step)
    return after(job, *(wrote(name, rank, step) for name, rank in SEATED))  # type: ignore[arg-type]


def published(job: Job = SAVES, step: int = 10) -> Job:
    job, effects = written(job, step)
    (order,) = [effect for effect in effects if isinstance(effect, Publish)]
    job, _ = decide(job, CheckpointPublished(at_us=0, checkpoint=order.checkpoint))
    return job


def test_a_checkpoint_is_written_of_the_first_cut_that_is_due() -> None:
    job, early = cut_at(SAVES, 9)
    assert not orders(early, m.WriteCheckpoint)
    _, effects = cut_at(job, 10)
    assert {name: order.step for name, order in orders(effects, m.WriteCheckpoint).items()} == {
        "m1": 10, "m2": 10, "m3": 10,
    }  # fmt: skip


def test_it_is_published_with_the_last_part_and_names_every_file() -> None:
    _, effects = written(SAVES)
    (order,) = [effect for effect in effects if isinstance(effect, Publish)]
    checkpoint = order.checkpoint
    assert checkpoint.states[1][0].file == "step-000000000010/rank-00001.state"
    assert checkpoint.records == {0: m.Written("first-steps/r", 3, "r")}
    assert [fact.rank for fact in checkpoint.recorded] == [0, 1, 2]


def test_the_same_multiple_is_not_written_twice() -> None:
    job, effects = cut_at(published(), 15)
    assert not orders(effects, m.WriteCheckpoint)
    _, effects = cut_at(job, 20)
    assert orders(effects, m.WriteCheckpoint)


def test_what_an_old_epoch_has_written_counts_for_nothing() -> None:
    job, _ = cut_at(SAVES, 10)
    job, effects = after(job, lost("m2"))
    assert GiveUpCheckpoint(10, 1) in effects
    _, effects = after(job, wrote("m1", 0), wrote("m3", 2))  # type: ignore[arg-type]
    assert not [effect for effect in effects if isinstance(effect, Publish)]


def test_what_becomes_of_another_checkpoint_does_not_end_the_one_that_is_written() -> None:
    job, _ = cut_at(published(), 20)
    late = CheckpointFailed(at_us=0, step=10, epoch=1, why="No space left")
    other = CheckpointFailed(at_us=0, step=20, epoch=9, why="No space left")
    for event in (late, other):
        assert decide(job, event)[0].writing == job.writing
    own = CheckpointFailed(at_us=0, step=20, epoch=1, why="No space left")
    assert decide(job, own)[0].writing is None


def test_where_a_machine_with_ranks_is_gone_no_checkpoint_is_begun() -> None:
    """Its rank's snapshot is in no memory that writes."""
    job, _ = cut_at(SAVES, 9)
    cut = replace(job.cut, step=10) if job.cut is not None else None
    there = tend_checkpoints(replace(job, cut=cut), 0)
    assert orders(there[1], m.WriteCheckpoint)
    for name, _ in SEATED:
        left = replace(job, cut=cut, machines=job.machines.without({name}))
        assert not orders(tend_checkpoints(left, 0)[1], m.WriteCheckpoint)
    other = replace(cut, workers={**cut.workers, 1: "the process before"}) if cut else None
    assert not orders(tend_checkpoints(replace(job, cut=other), 0)[1], m.WriteCheckpoint)


def test_a_part_that_cannot_be_written_gives_the_checkpoint_up_and_nothing_else() -> None:
    job, _ = cut_at(published(), 20)
    job, effects = after(job, wrote("m2", 1, 20, refused="No space left on device"))  # type: ignore[arg-type]
    assert GiveUpCheckpoint(20, 1) in effects
    assert (job.writing, job.code, job.change) == (None, None, None)
    assert job.checkpoint is not None
    assert job.checkpoint.step == 10
    assert orders(cut_at(job, 30)[1], m.WriteCheckpoint)


def test_a_checkpoint_that_the_host_cannot_publish_is_none() -> None:
    job, _ = written(SAVES)
    job, _ = decide(job, CheckpointFailed(at_us=0, step=10, epoch=1, why="No space left"))
    assert (job.writing, job.checkpoint, job.checkpointed) == (None, None, 10)


def test_cuts_for_checkpoints_do_not_turn_snapshots_on() -> None:
    assert not orders(written(SAVES)[1], m.KeepSnapshots)


# --- rung 3 ---------------------------------------------------------------------------------------


def without_a_cut(job: Job) -> tuple[Job, tuple[Effect, ...]]:
    """m2 is lost after step 14, with the record of its rank."""
    job, _ = after(job, lost("m2"))
    position = {"epoch": job.epoch_last, "committed": 14, "gate": 0}
    return after(
        job,
        said("m1", m.Position(rank=0, **position)),  # type: ignore[arg-type]
        said("m3", m.Position(rank=2, **position)),  # type: ignore[arg-type]
        *[vault(name, job.epoch_last) for name in ("m1", "m3", "m4")],
    )


def at_disk() -> Job:
    """All processes are up again, and the checkpoint is known."""
    job, _ = without_a_cut(published())
    job, _ = after(job, up("m1"), up("m4"), up("m3"))
    assert job.change is not None
    found = CheckpointFound(at_us=0, epoch=job.change.epoch, checkpoint=job.checkpoint, damaged=[])
    return decide(job, found)[0]


def all_parked(job: Job) -> tuple[Job, tuple[Effect, ...]]:
    epoch = job.epoch_last
    facts = [("m1", 0), ("m4", 1), ("m3", 2)]
    return after(
        job,
        *(said(n, m.Parked(rank=r, epoch=epoch, trace="t", bind_ms=1)) for n, r in facts),
    )


def test_where_no_cut_is_at_hand_all_machines_start_again_from_the_checkpoint() -> None:
    job, effects = without_a_cut(published())
    assert orders(effects, m.StartWorkers).keys() == {"m1", "m4", "m3"}
    assert FindCheckpoint(job.epoch_last, frozenset()) in effects
    assert job.incidents[-1].rung == 3


def test_each_rank_is_told_its_file_and_the_redone_steps_are_counted() -> None:
    job, effects = all_parked(at_disk())
    switch = orders(effects, m.Switch)["m4"]
    assert (switch.back, switch.committed, job.incidents[-1].redone) == (True, 10, 4)
    assert switch.files[1] == ["/kept/step-000000000010/rank-00001.state"]


def test_nobody_is_switched_before_the_checkpoint_was_read() -> None:
    job, _ = without_a_cut(published())
    job, _ = after(job, up("m1"), up("m4"), up("m3"))
    assert not orders(all_parked(job)[1], m.Switch)


def test_a_rank_that_cannot_use_its_file_makes_the_job_take_the_one_before() -> None:
    job, _ = all_parked(at_disk())
    fact = m.Interrupted(rank=1, epoch=job.epoch_last, reason="damaged", unusable=10)
    job, _ = after(job, said("m4", fact))
    _, effects = after(job, *[vault(name, job.epoch_last) for name in ("m1", "m3", "m4")])
    assert [e.unusable for e in effects if isinstance(e, FindCheckpoint)] == [frozenset({10})]


def test_a_checkpoint_that_is_damaged_costs_no_restart_and_is_named() -> None:
    job, _ = all_parked(at_disk())
    job = replace(job, spec=msgspec.structs.replace(job.spec, restarts_max=1))
    assert job.restarts == 1
    fact = m.Interrupted(rank=1, epoch=job.epoch_last, reason="x is damaged", unusable=10)
    job, _ = after(job, said("m4", fact))
    assert job.incidents[-1].cause == "rank 1 cannot go back to step 10 (x is damaged)"
    job, effects = after(job, *[vault(name, job.epoch_last) for name in ("m1", "m3", "m4")])
    assert [e.unusable for e in effects if isinstance(e, FindCheckpoint)] == [frozenset({10})]
    assert job.code is None


def test_one_that_was_damaged_and_is_written_anew_can_be_used() -> None:
    damaged = replace(SAVES, unusable=frozenset({5, 10}))
    assert published(damaged, 10).unusable == {5}


def test_without_a_checkpoint_that_is_whole_the_job_ends_and_names_the_damaged() -> None:
    job, _ = without_a_cut(published())
    found = CheckpointFound(at_us=0, epoch=job.epoch_last, checkpoint=None, damaged=["10 is bad."])
    end = ended(decide(job, found)[1])
    assert end.code == 1
    assert "m2 was lost: link broke, and no checkpoint in /kept is whole." in end.text
    assert "10 is bad." in end.text


def test_an_older_one_that_is_found_is_the_newest_from_then_on() -> None:
    job, _ = without_a_cut(published())
    assert job.checkpoint is not None
    older = msgspec.structs.replace(job.checkpoint, step=Step(5))
    found = CheckpointFound(at_us=0, epoch=job.epoch_last, checkpoint=older, damaged=["10 is bad."])
    job, _ = decide(job, found)
    assert (job.checkpoint, job.checkpointed, job.committed) == (older, 5, 5)


def test_what_is_found_for_a_change_that_is_over_changes_nothing() -> None:
    found = CheckpointFound(at_us=0, epoch=1, checkpoint=None, damaged=["10 is bad."])
    at_once, _ = decide(published(), lost("m2"))
    job, _ = without_a_cut(published())
    for one in (published(), at_once, job):
        epoch = 1 if one is job else one.epoch_last
        assert decide(one, msgspec.structs.replace(found, epoch=epoch)) == (one, ())


def test_rung_3_is_a_restart_and_restarts_are_limited() -> None:
    job = replace(published(), restarts=SAVES.spec.restarts_max)
    assert "--max-restarts" in ended(without_a_cut(job)[1]).text


def test_a_damaged_snapshot_in_memory_is_not_gone_back_to_again() -> None:
    job, _ = all_parked(at_disk())
    assert job.change is not None
    cut, _ = cut_at(RUNNING, 10)
    in_memory = replace(job, cut=cut.cut, change=replace(job.change, disk=False))
    fact = m.Interrupted(rank=1, epoch=job.epoch_last, reason="damaged", unusable=10)
    assert without_unusable(in_memory, fact).cut is None
    other = msgspec.structs.replace(fact, unusable=0)
    assert without_unusable(in_memory, other).cut is not None


def test_what_is_journaled_of_checkpoints_is_read_again() -> None:
    for event in (
        CheckpointPublished(at_us=1, checkpoint=published().checkpoint),
        CheckpointFound(at_us=1, epoch=2, checkpoint=None, damaged=["10 is bad."]),
    ):
        assert msgspec.json.decode(msgspec.json.encode(event), type=EVENTS) == event


# --- resume ---------------------------------------------------------------------------------------


def resumed(torch: str = "2") -> tuple[Job, tuple[Effect, ...]]:
    found = published().checkpoint
    assert found is not None
    found = msgspec.structs.replace(found, epoch=7, torch=torch)
    job = Job(msgspec.structs.replace(SAVES.spec, resume=found))
    names = ["m1", "m2", "m3"]
    return after(job, *map(joined, names), *map(up, names))


def test_a_resumed_job_has_all_ranks_join_in_a_newer_epoch() -> None:
    job, effects = resumed()
    assert {name: (o.slot, o.epoch) for name, o in orders(effects, m.Bind).items()} == {
        "m1": (0, 8), "m2": (1, 8), "m3": (2, 8),
    }  # fmt: skip
    bind = orders(effects, m.Bind)["m1"]
    assert bind.records[0][0].file == "/kept/first-steps/r"
    facts = [said(n, m.Parked(rank=r, epoch=8, trace="t", bind_ms=1)) for n, r in SEATED]
    _, effects = after(job, *facts)
    files = {name: set(order.files) for name, order in orders(effects, m.Switch).items()}
    assert files == {"m1": {0}, "m2": {1}, "m3": {2}}
    assert (job.committed, job.incidents[-1].outcome) == (10, Outcome.OPEN)


def test_a_resumed_job_knows_what_the_checkpoint_knows_and_counts_from_there() -> None:
    job, _ = resumed()
    found = job.spec.resume
    assert found is not None
    (one,) = job.incidents
    assert (one.rung, one.machine, one.joiner, one.ranks, one.step) == (3, None, None, (), 10)
    assert one.epoch == job.epoch_last == found.epoch + 1
    assert set(one.marks) >= {"heard", "detect"}
    assert found.run_id in one.cause
    assert job.all_recorded
    assert dict(job.recorded) == {said.rank: said for said in found.recorded}
    assert all(rank in job.attached for rank in range(3))
    assert (job.checkpoint, job.checkpointed, job.restarts) == (found, 10, 0)


def test_a_resumed_job_runs_once_all_have_joined() -> None:
    job, _ = resumed()
    assert job.change is not None
    assert (job.change.back, job.change.disk, job.change.leavers) == (True, True, {})
    epoch = job.epoch_last
    job, _ = after(job, *(parked(n, r, epoch) for n, r in SEATED))
    job, _ = after(job, *(loaded(n, r, epoch) for n, r in SEATED))
    job, effects = after(job, *(switched(n, r, epoch) for n, r in SEATED))
    assert (job.change, job.epoch) == (None, epoch)
    assert set(orders(effects, m.Go)) == {"m1", "m2", "m3"}
    job, _ = after(job, *(committed(n, r, epoch, step=11) for n, r in SEATED))
    assert (job.incidents[-1].outcome, job.incidents[-1].redone) == (Outcome.DONE, 0)


def test_a_resumed_job_is_of_a_newer_epoch_than_any_that_there_was() -> None:
    job = resumed()[0]
    found = job.spec.resume
    assert found is not None
    begun = Job(msgspec.structs.replace(job.spec, resume=msgspec.structs.replace(found, epoch=2)))
    names = ["m1", "m2", "m3"]
    job, _ = after(replace(begun, epoch_last=5), *map(joined, names), *map(up, names))
    assert job.epoch_last == 6


def test_another_torch_is_refused() -> None:
    _, effects = resumed(torch="1")
    assert "written with torch 1; 2 is installed" in ended(effects).text


def test_a_machine_lost_while_the_job_is_resumed_has_a_standby_go_there_too() -> None:
    job, _ = resumed()
    job, _ = after(job, joined("m4", standby=True), up("m4"), lost("m2"))
    job, effects = after(job, *[vault(name, job.epoch_last) for name in ("m1", "m3", "m4")])
    assert [e.epoch for e in effects if isinstance(e, FindCheckpoint)] == [job.epoch_last]
    assert job.change is not None
    assert job.change.joiners == {0: "m1", 1: "m4", 2: "m3"}


# --- no endless loop ------------------------------------------------------------------------------


def fails_again(job: Job, at_us: int) -> tuple[Job, tuple[Effect, ...]]:
    """The worker of m1 crashes in step 8, is started again, and takes its rank."""
    job, _ = after(job, exited("m1", at_us=at_us), up("m1"))
    epoch = job.epoch_last
    joiner = job.change.joiners[0] if job.change else ""
    others = [(name, rank) for name, rank in SEATED if rank]
    facts = [said(n, m.Position(rank=r, epoch=epoch, committed=7, gate=0)) for n, r in others]
    held = [vault(name, epoch, {0: [8]}) for name in job.machines]
    job, effects = after(job, *facts, *held)
    if job.code is None:
        boundaries = [at_boundary(n, r, epoch) for n, r in others]
        there = [(joiner, 0), *others]
        job, _ = after(job, *boundaries, parked(joiner, 0, epoch), loaded(joiner, 0, epoch))
        job, effects = after(job, *(switched(n, r, epoch) for n, r in there))
    return job, effects


def test_the_same_step_failing_three_times_ends_the_job_with_the_evidence() -> None:
    job = running(standbys=0)
    for second in (1, 2):
        job, _ = fails_again(job, second * 1_000_000)
        assert job.code is None
        assert job.machines["m1"].state is MachineState.ACTIVE
    _, effects = fails_again(job, 3_000_000)
    text = ended(effects).text
    assert text.startswith("Step 8 has failed 3 times:\n  incident 1, first on m1: worker 0 of m1")
    assert "incident 3, 2.0 s later on m1" in text


def test_failures_of_different_steps_do_not_add_up() -> None:
    job = running(standbys=0)
    for last in (7, 8, 9, 10):
        job, _ = fails_again(job, 0)
        other = replace(job.incidents[-1], failed=(last, job.incidents[-1].epoch))
        job = replace(job, incidents=(*job.incidents[:-1], other))
    assert job.code is None
