"""The runs of the script in this process, one after another, as the job's controller orders them.

Live as a rank; as a warm-up in the sandbox; or bound as a joiner, which becomes live.
"""

import os
import time

from torch._C._distributed_c10d import HashStore, PrefixStore

from trainmover.comm import groups
from trainmover.errors import TrainmoverError
from trainmover.ids import Epoch, Rank, Slot, Step
from trainmover.protocol.messages import (
    Attached,
    Bind,
    Finished,
    Left,
    Raised,
    RunRank,
    SandboxFailed,
    Warm,
    WarmUp,
)
from trainmover.sandbox.record import Recorder
from trainmover.worker import api
from trainmover.worker.control import Control
from trainmover.worker.joiner import Joiner
from trainmover.worker.member import Member
from trainmover.worker.program import Ended, clean_up, flush_output, run_script
from trainmover.worker.standing import NONE, Unwind
from trainmover.worker.station import Station
from trainmover.worker.taken import first_steps

UNATTACHED_GRACE_S = 3.0
"""A script that never attached raises when a peer dies; the machine's loss is known by then."""


class Runs:
    """What the main thread does. `go_on` returns when the process is to exit."""

    def __init__(self, station: Station, control: Control) -> None:
        self._station = station
        self._control = control
        self._spec = station.spec
        self._standing = station.standing
        self._say = station.link.say

    def go_on(self) -> None:
        """Do as told until told to exit."""
        while (work := self._control.next_work()) is not None:
            match work:
                case RunRank():
                    self._live(work)
                case WarmUp():
                    self._warm_up(work)
                case Bind():
                    self._bound(work)

    def attached(self) -> None:
        """Called when the script attaches."""
        member = self._control.member
        if member is not None and not member.is_shadow:
            self._say(Attached(rank=member.rank))

    # --- three kinds of runs ----------------------------------------------------------------------

    def _live(self, order: RunRank) -> None:
        rank = self._take_slot(order.slot)
        stores, standing = self._station.stores, self._standing
        store = stores.take()
        groups.rendezvous_store = lambda: PrefixStore(f"script/{order.epoch}", stores.take())
        groups.use_store(store, order.epoch)
        with standing.changed:
            standing.live, standing.epoch = True, order.epoch
            standing.ordered = max(standing.ordered, order.epoch)
        member = Member(rank, self._station)
        member.ledger.first_of = order.epoch
        member.recorder = groups.tap = Recorder(rank)
        self._control.member = member
        member.follow(order.buddies[rank])
        ended = self._run(member)
        if self._told_to_leave(ended, NONE):
            self._leave(member)
        else:
            self._report(member, ended)

    def _warm_up(self, order: WarmUp) -> None:
        started = time.monotonic_ns()
        joiner = self._shadow(order.slot, order.records, bound_for=None)
        if joiner is None:
            return
        ended = self._run(joiner)
        self._forget(joiner)
        if not ended.unwound:
            self._say(SandboxFailed(rank=joiner.rank, reason=_shadow_end(ended, joiner)))
            return
        warm_ms = (time.monotonic_ns() - started) // 1_000_000
        trace, steps = joiner.replayer.trace(), joiner.shadow_steps
        self._say(Warm(rank=joiner.rank, shadow_steps=steps, trace=trace, warm_ms=warm_ms))

    def _bound(self, order: Bind) -> None:
        """A joiner: in the sandbox until the switchover, then live until the script's end."""
        joiner = self._shadow(order.slot, order.records, bound_for=order.epoch)
        if joiner is None:
            return
        self._control.member = joiner
        ended = self._run(joiner)
        if self._told_to_leave(ended, order.epoch):
            self._leave(joiner)
        elif joiner.is_shadow:
            self._forget(joiner)
            self._say(SandboxFailed(rank=joiner.rank, reason=_shadow_end(ended, joiner)))
        else:
            self._report(joiner, ended)

    def _shadow(
        self, slot: Slot, records: dict[Rank, list[str]], *, bound_for: Epoch | None
    ) -> Joiner | None:
        """The runtime of a run in the sandbox; None if there is no record to serve it from."""
        rank = self._take_slot(slot)
        try:
            record = first_steps(rank, records, self._station.token)
        except TrainmoverError as error:
            self._say(SandboxFailed(rank=rank, reason=str(error).split("\n")[0]))
            return None
        groups.rendezvous_store = HashStore
        groups.sandbox()
        return Joiner(rank, self._station, record, bound_for=bound_for)

    def _take_slot(self, slot: Slot) -> Rank:
        """RANK and its kin, as torchrun sets them."""
        rank = self._spec.ranks(slot)[self._station.local_rank]
        os.environ.update(RANK=str(rank), ROLE_RANK=str(rank), GROUP_RANK=str(slot))
        return rank

    def _run(self, member: Member) -> Ended:
        api.serve(member)
        return run_script(self._spec.argv, module=self._spec.module)

    # --- how a run ends ---------------------------------------------------------------------------

    def _told_to_leave(self, ended: Ended, bound_for: Epoch) -> bool:
        """Whether the run ended because the rank lives elsewhere: also if the script's own
        clean-up made something else of the unwinding."""
        standing = self._standing
        return ended.unwound or standing.leave >= max(bound_for, standing.epoch + 1)

    def _leave(self, member: Member) -> None:
        self._forget(member)
        self._say(Left())

    def _forget(self, member: Member) -> None:
        """The run is over: drop model, groups and connections, keep the process warm."""
        api.serve(None)
        self._control.member = None
        member.keeper.close()
        member.forget()
        with self._standing.changed:
            self._standing.live = False
            self._standing.committed = self._standing.gate = Step(0)
        clean_up()

    def _report(self, member: Member, ended: Ended) -> None:
        """Say how the script ended; stay as a source of state until told to exit."""
        if ended.error:
            self._report_error(member, ended)
            self._standing.await_exit()
            return
        member.ledger.close()
        digest = member.tracked.digest() if api.attached() else ""
        flush_output()
        self._say(
            Finished(
                rank=member.rank,
                step=self._standing.committed,
                code=ended.code,
                digest=digest,
                attached=api.attached(),
            )
        )
        self._stay(member)

    def _report_error(self, member: Member, ended: Ended) -> None:
        if not api.attached() or groups.draining:
            time.sleep(UNATTACHED_GRACE_S)  # A lost peer may be the cause: it is said first.
        member.ledger.close()
        self._say(
            Raised(
                rank=member.rank,
                step=max(member.calls, member.begun),
                error=ended.error,
                traceback=ended.traceback,
            )
        )

    def _stay(self, member: Member) -> None:
        """The script is done, the job may not be: take part in switchovers until `Exit`."""
        standing = self._standing
        while True:
            with standing.changed:
                while not standing.exit and not standing.pending:
                    standing.changed.wait()
                if standing.exit:
                    break
            try:
                member.boundary.settle()
            except Unwind:  # The last script ended while a switchover was under way.
                break
        self._forget(member)


def _shadow_end(ended: Ended, joiner: Joiner) -> str:
    if ended.error:
        return f"the script raised in the sandbox: {ended.error}"
    return f"the script ended in the sandbox after {joiner.shadow_steps} steps"
