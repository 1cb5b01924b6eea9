"""No standby is left: the newest cut is written by whom there is, and then the job ends."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from jobs import RUNNING, after, ended, exited, joined, kill, lost, orders, running, said, up

from trainmover.controller import Job, decide
from trainmover.controller.effects import Effect, GiveUpCheckpoint, Publish
from trainmover.controller.events import (
    AgentSaid,
    CheckpointFailed,
    CheckpointPublished,
    ControllerReturned,
    StopRequested,
    Tick,
)
from trainmover.controller.keep.last_checkpoint import SAVE_US
from trainmover.controller.state import Phase
from trainmover.protocol import messages as m

SEATED = [("m1", 0), ("m2", 1), ("m3", 2)]
BUDDY = {0: "m2", 1: "m3", 2: "m1"}


def policy(job: Job, **more: Any) -> Job:
    given = {"checkpoint": "/kept", "checkpoint_every": 100, "no_standby": "checkpoint", **more}
    return replace(job, spec=msgspec.structs.replace(job.spec, **given))


def with_cut(job: Job, step: int = 7) -> Job:
    """All ranks' snapshots, each in the vault of the next machine too."""
    facts = [
        m.Snapped(
            rank=rank, epoch=job.epoch, step=step, vault=job.machines[BUDDY[rank]].vault, bytes=9,
            cost_us=3, step_us=9,
        )
        for _, rank in SEATED
    ]  # fmt: skip
    return after(job, *(said(name, f) for (name, _), f in zip(SEATED, facts, strict=True)))[0]


def wrote(machine: str, rank: int, epoch: int, refused: str = "") -> Any:
    part = m.Written(f"rank-{rank:05d}.state", 9, "d")
    return said(machine, m.Wrote(rank=rank, epoch=epoch, step=7, state=[part], refused=refused))


def publish(effects: tuple[Effect, ...]) -> list[m.Checkpoint]:
    return [effect.checkpoint for effect in effects if isinstance(effect, Publish)]


ALONE = with_cut(policy(running(standbys=0)))
SAVING, BEGUN = decide(ALONE, lost("m2", at_us=100))


def test_survivors_write_their_own_and_that_of_the_lost_rank() -> None:
    assert SAVING.saves_last
    sent = orders(BEGUN, m.WriteCheckpoint)
    assert sent.keys() == {"m1", "m3"}
    assert sent["m1"] == sent["m3"]
    (foreign,) = sent["m1"].foreign
    vault = ALONE.machines["m3"].vault
    assert (foreign.rank, foreign.writer, foreign.vaults) == (1, 0, [vault])
    assert (sent["m1"].step, sent["m1"].epoch) == (7, 2)
    assert not orders(BEGUN, m.Interrupt)


def test_a_snapshot_that_another_process_holds_is_written_as_one_of_a_lost_rank() -> None:
    assert ALONE.cut is not None
    cut = replace(ALONE.cut, workers={**ALONE.cut.workers, 2: ALONE.cut.workers[0]})
    _, effects = decide(replace(ALONE, cut=cut), lost("m2", at_us=100))
    assert [one.rank for one in orders(effects, m.WriteCheckpoint)["m1"].foreign] == [1, 2]


def test_it_is_published_with_the_last_part_and_the_job_ends() -> None:
    job, effects = after(SAVING, wrote("m1", 0, 2), wrote("m3", 2, 2))
    assert not publish(effects)
    job, effects = after(job, wrote("m1", 1, 2))
    (checkpoint,) = publish(effects)
    assert checkpoint.states.keys() == {0, 1, 2}
    job, effects = decide(job, CheckpointPublished(at_us=0, checkpoint=checkpoint))
    end = ended(effects)
    assert end.code == 1
    assert end.text.startswith("m2 was lost")
    assert "ended with a checkpoint of step 7.\n--resume goes on from it" in end.text


def test_another_loss_means_that_others_write() -> None:
    job, _ = after(SAVING, wrote("m1", 0, 2))
    job, effects = decide(job, lost("m1", at_us=200))
    assert GiveUpCheckpoint(7, 2) in effects
    assert "not every rank's snapshot of step 7 is left" in ended(effects).text  # Rank 0's is not.
    further = replace(ALONE.cut, further={0: ALONE.machines["m3"].vault})
    job, _ = after(replace(ALONE, cut=further), lost("m2", at_us=100), wrote("m1", 0, 2))
    job, effects = decide(job, lost("m1", at_us=200))
    sent = orders(effects, m.WriteCheckpoint)
    assert sent.keys() == {"m3"}
    assert [(one.rank, one.writer) for one in sent["m3"].foreign] == [(0, 2), (1, 2)]
    assert sent["m3"].epoch == 3


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (CheckpointFailed(at_us=1, step=7, epoch=2, why="No space left"), "No space left"),
        (wrote("m1", 1, 2, refused="its buddy is gone"), "rank 1: its buddy is gone"),
        (Tick(at_us=100 + SAVE_US), "it took longer than 600 s"),
        (StopRequested(at_us=1, code=130, why="stopped by SIGINT"), "stopped by SIGINT"),
    ],
)
def test_what_cannot_be_written_is_said(event: Any, why: str) -> None:
    _, effects = decide(SAVING, event)
    assert f"without a last checkpoint: {why}. There is none." in ended(effects).text


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (policy(running(standbys=0)), "there was no snapshot of all ranks yet"),
        (replace(ALONE, cut=replace(ALONE.cut, vaults={1: ""})), "not every rank's snapshot"),
    ],
)
def test_without_a_cut_at_hand_it_says_so(job: Job, why: str) -> None:
    _, effects = decide(job, lost("m2"))
    assert f"without a last checkpoint: {why}" in ended(effects).text


def test_a_checkpoint_of_that_cut_is_not_made_twice() -> None:
    _, effects = after(SAVING, *(wrote("m1", rank, 2) for rank in (0, 1, 2)))
    (checkpoint,) = publish(effects)
    _, effects = decide(replace(ALONE, checkpoint=checkpoint, checkpointed=7), lost("m2"))
    assert "with a checkpoint of step 7" in ended(effects).text
    assert not orders(effects, m.WriteCheckpoint)


def test_what_else_is_said_meanwhile_changes_nothing() -> None:
    for event in (wrote("m1", 0, 1), exited("m9"), joined("m9", standby=True), up("m1")):
        job, effects = decide(SAVING, event)
        assert job.saves_last
        assert not orders(effects, m.WriteCheckpoint)
    job, effects = decide(SAVING, kill("m1"))
    assert (job, [effect.ok for effect in effects]) == (SAVING, [False])  # type: ignore[union-attr]
    job, effects = decide(SAVING, ControllerReturned(at_us=5))
    assert (job.saves_last, job.takeovers, effects) == (True, 1, ())


def test_a_standby_that_is_there_is_taken_and_so_is_one_that_is_waited_for() -> None:
    job, effects = decide(with_cut(policy(RUNNING)), lost("m2"))
    assert orders(effects, m.Bind)
    job, _ = decide(with_cut(policy(running(standbys=0), wait_s=5)), lost("m2", at_us=0))
    assert job.phase is Phase.RUNNING
    job, effects = decide(job, Tick(at_us=5_000_000))
    assert job.saves_last
    assert orders(effects, m.WriteCheckpoint)


def test_a_job_that_is_to_end_ends() -> None:
    job, effects = decide(policy(ALONE, no_standby="end"), lost("m2"))
    assert ended(effects).code == 1
    assert job.phase is Phase.ENDED


def test_what_becomes_of_an_older_one_does_not_end_it() -> None:
    job, effects = after(SAVING, *(wrote("m1", rank, 2) for rank in (0, 1, 2)))
    (checkpoint,) = publish(effects)
    older = msgspec.structs.replace(checkpoint, step=5, epoch=1)
    job, effects = decide(SAVING, CheckpointPublished(at_us=0, checkpoint=older))
    assert (job.saves_last, job.writing, effects) == (True, SAVING.writing, ())
    job, effects = decide(job, CheckpointFailed(at_us=1, step=6, epoch=1, why="No space left"))
    assert (job.saves_last, job.writing, effects) == (True, SAVING.writing, ())


def test_nobody_is_judged_meanwhile_also_not_for_what_was_said_before() -> None:
    pid = ALONE.machines["m1"].pids[0]
    stopped = m.WorkerState(local_rank=0, pid=pid, state="stopped")
    said_so = AgentSaid(at_us=0, machine="m1", fact=stopped)
    for events in ((said_so, lost("m2", at_us=100)), (lost("m2", at_us=100), said_so)):
        job, _ = after(ALONE, *events)
        job, effects = decide(job, Tick(at_us=300_000_000))
        assert (job.saves_last, effects) == (True, ())
