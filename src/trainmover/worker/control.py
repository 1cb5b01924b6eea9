# SPDX-License-Identifier: Apache-2.0
"""The control thread: turns orders into changes of `Standing`, wakes the main thread.

Whatever it does is quick and never blocks for peers; the main thread may be anywhere in a step.
"""

import os
import threading
from contextlib import suppress
from typing import assert_never

import torch.distributed as dist

from trainmover.comm import groups
from trainmover.errors import PeerLost, TrainmoverError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import (
    WORKER_ORDERS,
    Bind,
    CutComplete,
    Discard,
    Ending,
    Exit,
    GiveSnapshots,
    Go,
    Hold,
    Interrupt,
    Interrupted,
    KeepSnapshots,
    KeepTold,
    Leave,
    Order,
    PauseAt,
    Prepare,
    Prepared,
    RunRank,
    StoreAt,
    Switch,
    Terminate,
    Verdict,
    WarmUp,
    WriteCheckpoint,
)
from trainmover.worker.join.joiner import Joiner
from trainmover.worker.join.rollback import InPlace
from trainmover.worker.join.shadow import Shadow
from trainmover.worker.keep.checkpoints import write_part
from trainmover.worker.keep.first_steps import FirstSteps
from trainmover.worker.member import Member
from trainmover.worker.station import Station

PATIENCE_S, PATIENCE_AT_FIRST_S = 180.0, 600.0
STEPS_ALLOWED, STEPS_LOOKED_AT = 20, 64
"""Of the longest of its newest steps."""
Work = RunRank | WarmUp | Hold | Bind


class Control:
    """Obeys orders on the link's thread.

    member  of the script's run, put here by the main thread; None between runs
    joiner  whose run that is, if it began in the sandbox; together with `member`
    """

    def __init__(self, station: Station) -> None:
        self.member: Member | None = None
        self.joiner: Joiner | InPlace | None = None
        self._station = station
        self._standing = station.standing
        self._say = station.link.say
        self._work: Work | None = None
        groups.on_broken = self._link_broke

    def next_work(self) -> Work | None:
        """What the main thread is to do next, once it is told; None: exit."""
        standing = self._standing
        with standing.changed:
            while self._work is None and not standing.exit:
                standing.changed.wait()
            work, self._work = self._work, None
            standing.recalled = False
            return work

    def give_back(self, work: Work | None) -> None:
        """Keep work that was taken for who asks next, unless other work has come."""
        with self._standing.changed:
            self._work = self._work or work

    def obey(self, order: Order) -> None:
        """Take one order."""
        standing, joiner = self._standing, self.joiner
        assert isinstance(order, WORKER_ORDERS)
        match order:
            case Interrupt():
                self._interrupt(order)
                return
            case Prepare():
                self._prepare(order)
                return
            case CutComplete(step=step):  # It waits for who still reads an older one.
                self._station.snapshots.completed(step)
                return
            case StoreAt():
                self._move_store(order)
                return
            case Terminate():
                self._station.termination.end_ordered()
                return
            case KeepTold(keep=keep):
                standing.unheard = keep
                return
            case Discard(epoch=epoch):
                groups.discard(epoch)
            case Leave() if joiner is not None:
                joiner.takeover.cancel_early()
        with standing.changed:
            match order:
                case Bind(epoch=epoch) if (held := self._held_for(order)) is not None:
                    held.bound_for = epoch
                case RunRank() | WarmUp() | Hold() | Bind():
                    self._work, standing.recalled = order, True
                case Verdict() | Switch() | Go() | Leave() | Discard() | PauseAt() | Exit():
                    standing.obey(order)
                case KeepSnapshots(every=every, now=now):
                    self._station.snapshots.keep(every, now=now)
                    if now:  # So a stop begins, among other things.
                        self._station.termination.stop_seen()
                case GiveSnapshots():
                    self._give_snapshots(order)
                case WriteCheckpoint():
                    self._write_checkpoint(order)
                case Ending(step=step):
                    self._end_after(step)
                case _:
                    assert_never(order)
            standing.changed.notify_all()
        if standing.recalled:
            self.part_if_recalled()

    def told_within(self, seconds: float, bound_for: Epoch | None) -> bool:
        """Whether within that time there is other work, or word that the run is of no more use."""
        standing = self._standing

        def told() -> bool:
            leaves = bound_for is not None and standing.leave >= bound_for
            return self._work is not None or standing.exit or leaves

        with standing.changed:
            return standing.changed.wait_for(told, seconds)

    def part_if_recalled(self) -> None:
        """End a run that is only held and was recalled, also where it waits for another worker:
        that one may have been recalled before it began."""
        with self._standing.changed:
            held = self.joiner is not None and self.joiner.shadow.is_only_held
            ends = held and self._standing.recalled
        if ends:
            groups.desert("other work waits for it")

    def _held_for(self, order: Bind) -> Shadow | None:
        """The run under way, if it is the one that is now bound, and waits for that. One that was
        recalled is unwinding. Called under `changed`."""
        if self.joiner is None or self._standing.recalled:
            return None
        shadow = self.joiner.shadow
        if not isinstance(shadow, Shadow):
            return None
        is_meant = shadow.run == order.run
        is_meant &= shadow.member.rank in self._station.spec.ranks(order.slot)
        return shadow if is_meant and shadow.is_only_held else None

    def _interrupt(self, order: Interrupt) -> None:
        """Fix the position and the newer epoch in one moment; then wake everything that waits."""
        standing = self._standing
        with standing.changed:
            if not standing.interrupt(order.epoch):
                return
            position, joiner = standing.position(self._rank, self._patience_ms()), self.joiner
            switching = joiner is not None and joiner.takeover.switching
            standing.changed.notify_all()
        if joiner is not None:
            joiner.takeover.cancel()
        if position is not None:
            self._say(position)
        if position is not None or switching:  # A shadow run has no peers: it goes on.
            groups.drain(f"epoch {order.epoch} was ordered", epoch=order.epoch)

    def _patience_ms(self) -> int:
        """How long it may take to the next boundary: many times as long as its steps; 0: any time,
        since its script has said that it takes long."""
        member = self.member
        if member is None or member.declared:
            return 0
        steps = [seconds for _, seconds in member.footing.newest(STEPS_LOOKED_AT)]
        patience_s = max(PATIENCE_S, STEPS_ALLOWED * max(steps)) if steps else PATIENCE_AT_FIRST_S
        return int(patience_s * 1000)

    def _prepare(self, order: Prepare) -> None:
        """Phase 1, in a thread of the groups'; and what a joiner can have of its state by then."""
        joiner = self.joiner

        def done(reason: str) -> None:
            self._say(Prepared(rank=self._rank, epoch=order.epoch, reason=reason))

        def run() -> None:
            try:
                groups.prepare(order.epoch, self._station.stores.take())
                preparation = groups.prepared(order.epoch)
                if joiner is not None and (source := order.early.get(joiner.rank)):
                    joiner.takeover.take_early(source.address)
                preparation.wait()
                done("" if preparation.error is None else str(preparation.error).split("\n")[0])
            except (TrainmoverError, dist.DistError) as error:
                done(str(error).split("\n")[0])

        threading.Thread(target=run, name="tm-prepare", daemon=True).start()

    def _move_store(self, order: StoreAt) -> None:
        """At once for who asks from now on; what is connected to groups follows in a thread, since
        that waits for a connection."""

        def follow() -> None:
            with suppress(PeerLost):  # Or it has moved again.
                groups.store_moved(self._station.stores.take())

        self._station.stores.move(order.address)
        self._station.torchs.move(order.torch)
        host, _, os.environ["MASTER_PORT"] = order.torch.rpartition(":")
        os.environ["MASTER_ADDR"] = host
        threading.Thread(target=follow, name="tm-store-moved", daemon=True).start()

    def _write_checkpoint(self, order: WriteCheckpoint) -> None:
        """Of a run that has ended since nothing is in memory, and the writer says so."""
        member = self.member
        first_steps = member.recording.kept if member else FirstSteps()
        station = self._station
        write_part(order, self._rank, first_steps, station.snapshots, self._say, station.token)

    def _give_snapshots(self, order: GiveSnapshots) -> None:
        station = self._station
        for rank, vault in order.vaults.items():
            if rank % station.spec.nproc == station.local_rank:
                station.snapshots.give(rank, order.step, vault, order.epoch)

    def _end_after(self, step: Step) -> None:
        """A script has ended after `step`; this rank's may be further already."""
        self._standing.ending = step
        member = self.member
        if member is not None and member.in_step:
            member.say_if_past_end(member.calls)

    def _link_broke(self, reason: str) -> None:
        """Called by the groups, under their lock: say it and be gone."""
        standing = self._standing
        if standing.live and not standing.pending:
            self._say(Interrupted(rank=self._rank, epoch=standing.epoch, reason=_short(reason)))
        with standing.changed:
            standing.changed.notify_all()

    @property
    def _rank(self) -> Rank:
        return self.member.rank if self.member is not None else Rank(self._station.local_rank)


def _short(reason: str) -> str:
    """What gloo says, without its advice."""
    return reason.split("\n")[0].split(". This is typically")[0]
