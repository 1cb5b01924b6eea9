# SPDX-License-Identifier: Apache-2.0
"""Who stops a job is obeyed: at once, or once there is one more checkpoint, if he waits for that.

It is waited for only where one can be made, till it is there or the time is over, and no longer;
the job ends with his code, unless its scripts end well before. And a job that lacks a machine saves
first where it was told to, and nowhere else.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import End, Send
from trainmover.controller.events import CheckpointFailed, StopRequested
from trainmover.controller.keep.cuts import cut_at_hand
from trainmover.controller.state import Job, Phase
from trainmover.protocol.messages import KeepSnapshots
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

BEAT_US = 1_000_000
FOR_WANT = "must be replaced and"


class Stops:
    """asked: the job was to stop, by an event that it knows of."""

    def __init__(self) -> None:
        self.asked = False

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, moment: Replayed) -> None:
        if moment.torn:
            self.asked = moment.job.stopping is not None

    def decided(self, moment: Decided) -> None:
        before, after, event = moment.before, moment.after, moment.event
        end = next((one for one in moment.effects if isinstance(one, End)), None)
        if isinstance(event, StopRequested):
            self.asked = True
            self._is_obeyed(moment, event, end)
        elif end is not None and before.stopping is not None and self.asked:
            self._is_time(moment, end)
        elif before.stopping is None and after.stopping is not None:
            if after.spec.no_standby != "checkpoint":
                raise Violation(f"the job is about to stop, as nobody has asked: {after.stopping}")
        elif end is not None and before.stopping is None and FOR_WANT in end.text:
            _could_not_save(before, after, end)
        waits = after.stopping is not None and after.phase is Phase.RUNNING
        if waits and event.at_us > after.stopping.until_us + BEAT_US:  # type: ignore[union-attr]
            raise Violation(f"the job goes on, and was to stop: {after.stopping}")

    @staticmethod
    def _is_obeyed(moment: Decided, event: StopRequested, end: End | None) -> None:
        job = moment.before
        if job.saves_last:
            _ends_without(job, event, end)
            return
        trains = job.phase is Phase.RUNNING and job.change is None and not job.finished
        waits = job.stopping is None and event.until_us > event.at_us
        can = trains and waits and job.all_recorded and bool(job.spec.checkpoint)
        if not can:
            if end is None or (end.code, end.text.split("\n")[0].rstrip(".")) != (
                job.stopping.code if job.stopping is not None else event.code,
                event.why.rstrip("."),
            ):
                raise Violation(f"{event} is to be obeyed at once, and is not: {end}")
            return
        told = {
            effect.machine
            for effect in moment.effects
            if isinstance(effect, Send)
            and isinstance(effect.order, KeepSnapshots)
            and effect.order.now
        }
        if end is not None or told != {*job.seats} or moment.after.stopping is None:
            raise Violation(f"{event} waits for a checkpoint, which {told} are asked for: {end}")

    @staticmethod
    def _is_time(moment: Decided, end: End) -> None:
        stopping, after = moment.before.stopping, moment.after
        assert stopping is not None
        if not end.code:
            return
        if end.code != stopping.code:
            raise Violation(f"{stopping} is to end the job, and it ends with {end.code}")
        tried = after.checkpointed > stopping.after or isinstance(moment.event, CheckpointFailed)
        calm = not after.vacant()  # Nobody is lost whose rank is needed.
        stops = end.text.startswith(stopping.why)  # And is not ended by the script.
        if not tried and calm and stops and moment.event.at_us < stopping.until_us:
            raise Violation(f"{stopping} was not waited for: {moment.event}, {end.text}")


def _ends_without(job: Job, event: StopRequested, end: End | None) -> None:
    """Who does not wait for the last checkpoint is obeyed at once, and the job says so."""
    assert job.stopping is not None
    words = (
        f"{job.stopping.why.rstrip('.')}.\nThe job has ended without a last checkpoint: {event.why}"
    )
    if end is None or end.code != job.stopping.code or not end.text.startswith(words):
        raise Violation(f"{event} is to end the job without a last checkpoint, and does not: {end}")


def _could_not_save(before: Job, after: Job, end: End) -> None:
    """Where it was told to, and a snapshot of every rank was at hand, and a process to write it."""
    if before.spec.no_standby != "checkpoint" or "last checkpoint" in end.text:
        return
    if "has ended with a checkpoint" not in end.text and cut_at_hand(after) is not None:
        raise Violation(f"the job could have saved its state: {end.text}")
