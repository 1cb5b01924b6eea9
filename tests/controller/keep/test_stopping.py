"""A job that somebody stops makes one more checkpoint, if it has a folder for it and the time."""

from dataclasses import replace
from typing import Any

import pytest
from jobs import (
    RUNNING,
    after,
    at_boundary,
    ended,
    finished,
    interrupted,
    lost,
    move,
    orders,
    position,
    switched,
    vault,
)
from test_checkpoints import SAVES, cut_at, published, wrote

from trainmover.controller import Job, decide
from trainmover.controller.clock import tick_due
from trainmover.controller.effects import End, Publish
from trainmover.controller.events import (
    CheckpointFailed,
    CheckpointPublished,
    StopRequested,
    Tick,
)
from trainmover.controller.state import Stage
from trainmover.protocol import messages as m

SECOND = 1_000_000


def stop(until_us: int = 10 * SECOND) -> StopRequested:
    return StopRequested(at_us=SECOND, code=143, why="stopped by SIGTERM", until_us=until_us)


STOPPING, STOP_EFFECTS = decide(published(), stop())


def wrote_all(job: Job, step: int) -> tuple[Job, Any]:
    return after(job, *(wrote(f"m{rank + 1}", rank, step) for rank in range(3)))  # type: ignore[arg-type]


def test_it_ends_when_one_more_is_there() -> None:
    assert {order.now for order in orders(STOP_EFFECTS, m.KeepSnapshots).values()} == {True}
    job, effects = cut_at(STOPPING, 13)
    assert orders(effects, m.WriteCheckpoint).keys() == {"m1", "m2", "m3"}
    job, effects = wrote_all(job, 13)
    (order,) = [effect for effect in effects if isinstance(effect, Publish)]
    job, effects = decide(job, CheckpointPublished(at_us=0, checkpoint=order.checkpoint))
    assert ended(effects).code == 143
    assert "The checkpoint of step 13 is there" in ended(effects).text


def test_a_cut_from_before_is_not_the_last_one() -> None:
    job, effects = decide(cut_at(published(), 15)[0], stop())
    assert not orders(effects, m.WriteCheckpoint)
    assert orders(cut_at(job, 16)[1], m.WriteCheckpoint)


def test_a_checkpoint_whose_cut_is_lost_is_not_the_last_one() -> None:
    """A machine took its snapshots with it, and the newest cut is older than what was written."""
    job, effects = decide(replace(published(), cut=None), stop())
    assert not [effect for effect in effects if isinstance(effect, End)]
    assert {order.now for order in orders(effects, m.KeepSnapshots).values()} == {True}
    assert job.stopping is not None


def test_it_waits_so_long_and_no_longer() -> None:
    assert not tick_due(STOPPING, 0, 10 * SECOND - 1)
    assert tick_due(STOPPING, 0, 10 * SECOND)
    _, effects = decide(STOPPING, Tick(at_us=10 * SECOND))
    assert ended(effects).code == 143
    assert "No newer checkpoint could be written in time. The checkpoint of step 10 is there" in (
        ended(effects).text
    )


def test_a_second_stop_is_at_once() -> None:
    assert ended(decide(STOPPING, stop())[1]).code == 143


def test_a_loss_meanwhile_ends_it_with_the_code_of_the_stop() -> None:
    assert ended(decide(STOPPING, lost("m2"))[1]).code == 143
    alone, _ = decide(STOPPING, lost("m4"))
    end = ended(decide(alone, lost("m2"))[1])
    assert (end.code, end.text) == (143, ended(decide(STOPPING, lost("m2"))[1]).text)
    assert "stopped by SIGTERM" in end.text


def test_a_link_that_breaks_meanwhile_is_mended_and_the_checkpoint_made() -> None:
    job, effects = after(
        STOPPING,
        interrupted("m2", 1, 1),
        *(position(f"m{rank + 1}", rank, 2) for rank in range(3)),
        *(vault(f"m{rank + 1}", 2) for rank in range(4)),
        *(at_boundary(f"m{rank + 1}", rank, 2) for rank in range(3)),
    )
    assert job.change is not None
    assert job.change.stage is Stage.SWITCH, job.change
    job, effects = after(job, *(switched(f"m{rank + 1}", rank, 2) for rank in range(3)))
    assert {order.now for order in orders(effects, m.KeepSnapshots).values()} == {True}
    assert job.change is None
    assert orders(cut_at(job, 13)[1], m.WriteCheckpoint)


def test_one_that_cannot_be_published_is_not_tried_again() -> None:
    job, _ = cut_at(STOPPING, 13)
    job, _ = wrote_all(job, 13)
    _, effects = decide(job, CheckpointFailed(at_us=0, step=13, epoch=1, why="full"))
    assert ended(effects).code == 143


@pytest.mark.parametrize(
    "job",
    [
        RUNNING,
        decide(SAVES, lost("m2"))[0],
        decide(SAVES, move("m2"))[0],
        decide(SAVES, finished("m1", 0))[0],
        replace(SAVES, recorded=SAVES.recorded.without({0})),
    ],
    ids=["no folder", "loss", "move", "a rank is through", "a rank has recorded nothing"],
)
def test_without_a_way_to_it_is_at_once(job: Job) -> None:
    assert ended(decide(job, stop())[1]).code == 143


def test_nor_if_no_time_is_given() -> None:
    assert ended(decide(SAVES, stop(until_us=0))[1]).text == "stopped by SIGTERM"
