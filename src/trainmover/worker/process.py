"""A worker process: control thread, state server, and the loop that runs the script.

The control thread turns orders into changes of `Standing`; the main thread runs the script as it is
told: live, as a warm-up in the sandbox, or bound as a joiner that becomes live.
"""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import assert_never

import msgspec
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from trainmover.comm import groups, hook_torch
from trainmover.errors import PeerLost, TrainmoverError
from trainmover.ids import Epoch, Rank, Slot, Step
from trainmover.protocol.messages import (
    WORKER_ORDERS,
    Attached,
    Bind,
    Discard,
    Ending,
    Exit,
    Finished,
    Go,
    Interrupt,
    Interrupted,
    JobSpec,
    Leave,
    Left,
    Order,
    PauseAt,
    Position,
    Prepare,
    Prepared,
    Raised,
    RunRank,
    SandboxFailed,
    Switch,
    Verdict,
    Warm,
    WarmUp,
    WorkerUp,
)
from trainmover.sandbox.record import Record, Recorder, blob_name
from trainmover.state.modes import watch_wrappers
from trainmover.state.transfer import StateServer
from trainmover.state.vault import VaultClient
from trainmover.version import VERSION
from trainmover.worker import api
from trainmover.worker.joiner import Joiner
from trainmover.worker.link import ControlLink
from trainmover.worker.member import Member, Unwind
from trainmover.worker.program import Ended, clean_up, run_script
from trainmover.worker.standing import NONE, Standing
from trainmover.worker.stores import Stores

_PR_SET_PDEATHSIG = 1
UNATTACHED_GRACE_S = 3.0
"""A script that never attached raises when a peer dies; the machine's loss is known by then."""


class Worker:
    """One worker process."""

    def __init__(self, spec: JobSpec, token: bytes, local_rank: int, link: ControlLink) -> None:
        self.spec = spec
        self.local_rank = local_rank
        self.token = token
        self.link = link
        self.standing = Standing()
        self.stores = Stores(spec.store)
        self.server = StateServer(token)
        self.work: RunRank | WarmUp | Bind | None = None
        self.member: Member | None = None
        groups.on_broken = self._link_broke

    # --- control thread ---------------------------------------------------------------------------

    def obey(self, order: Order) -> None:
        """Take one order: quick, never blocks for peers."""
        standing = self.standing
        assert isinstance(order, WORKER_ORDERS)
        match order:
            case Interrupt():
                self._interrupt(order)
                return
            case Prepare():
                self._prepare(order)
                return
            case Discard(epoch=epoch):
                groups.discard(epoch)
        with standing.changed:
            match order:
                case RunRank() | WarmUp() | Bind():
                    self.work = order
                case Verdict():
                    standing.verdict = order
                case Switch():
                    standing.switch = order
                case Go(epoch=epoch):
                    standing.go(epoch)
                case Leave(epoch=epoch):
                    standing.leave = max(standing.leave, epoch)
                case Discard(epoch=epoch):
                    standing.discarded = max(standing.discarded, epoch)
                case PauseAt(epoch=epoch):
                    standing.pause_asked = max(standing.pause_asked, epoch)
                case Ending(step=step):
                    self._ending(step)
                case Exit():
                    standing.exit = True
                case _:
                    assert_never(order)
            standing.changed.notify_all()

    def _interrupt(self, order: Interrupt) -> None:
        """Fix the position and the newer epoch in one moment; then wake everything that waits."""
        standing = self.standing
        with standing.changed:
            if order.epoch <= standing.ordered:
                return
            standing.ordered, standing.verdict = order.epoch, None
            position = Position(
                rank=self._rank,
                epoch=order.epoch,
                committed=standing.committed,
                gate=standing.gate,
            )
            live, member = standing.live, self.member
            connected = live or (member is not None and member.switching)
            standing.changed.notify_all()
        if isinstance(member, Joiner):
            member.cancel()
        if live:
            self.link.say(position)
        if connected:  # A shadow run has no peers: it goes on.
            groups.drain(f"epoch {order.epoch} was ordered", epoch=order.epoch)

    def _prepare(self, order: Prepare) -> None:
        """Phase 1, in a thread of the groups'."""

        def done(reason: str) -> None:
            self.link.say(Prepared(rank=self._rank, epoch=order.epoch, reason=reason))

        def run() -> None:
            try:
                groups.prepare(order.epoch, self.stores.take())
                preparation = groups.prepared(order.epoch)
                preparation.wait()
                done("" if preparation.error is None else str(preparation.error).split("\n")[0])
            except (TrainmoverError, dist.DistError) as error:
                done(str(error).split("\n")[0])

        threading.Thread(target=run, name="tm-prepare", daemon=True).start()

    def _ending(self, step: Step) -> None:
        self.standing.ending = step
        member = self.member
        if member is not None and member.in_step and member.calls > step:
            member._check_ending(member.calls)

    def _link_broke(self, reason: str) -> None:
        """Called by the groups, under their lock: say it and be gone."""
        if self.standing.live and not self.standing.pending:
            epoch = self.standing.epoch
            self.link.say(Interrupted(rank=self._rank, epoch=epoch, reason=_short(reason)))
        with self.standing.changed:
            self.standing.changed.notify_all()

    @property
    def _rank(self) -> Rank:
        return self.member.rank if self.member is not None else Rank(self.local_rank)

    # --- main thread ------------------------------------------------------------------------------

    def run(self) -> None:
        """Do as told until told to exit."""
        self.link.listen(self.obey)
        self.link.say(
            WorkerUp(
                pid=os.getpid(),
                address=self.server.address,
                torch=str(torch.__version__),
                version=VERSION,
            )
        )
        while (work := self._next_work()) is not None:
            match work:
                case RunRank():
                    self._run_live(work)
                case WarmUp():
                    self._warm_up(work)
                case Bind():
                    self._run_bound(work)
        self.server.close()

    def _next_work(self) -> RunRank | WarmUp | Bind | None:
        with self.standing.changed:
            while self.work is None and not self.standing.exit:
                self.standing.changed.wait()
            work, self.work = self.work, None
            return work

    def _take_slot(self, slot: Slot) -> Rank:
        """RANK and its kin, as torchrun sets them."""
        rank = self.spec.ranks(slot)[self.local_rank]
        os.environ.update(RANK=str(rank), ROLE_RANK=str(rank), GROUP_RANK=str(slot))
        return rank

    def _run_live(self, order: RunRank) -> None:
        rank = self._take_slot(order.slot)
        store = self.stores.take()
        groups.rendezvous_store = lambda: PrefixStore(f"script/{order.epoch}", self.stores.take())
        groups.use_store(store, order.epoch)
        with self.standing.changed:
            self.standing.live, self.standing.epoch = True, order.epoch
            self.standing.ordered = max(self.standing.ordered, order.epoch)
        member = Member(
            rank=rank,
            spec=self.spec,
            token=self.token,
            standing=self.standing,
            say=self.link.say,
            server=self.server,
            store=self.stores.take,
        )
        member.first_of = order.epoch
        member.recorder = groups.tap = Recorder(rank)
        self.member = member
        member.follow(order.buddies[rank])
        self._run_and_report(member)

    def _warm_up(self, order: WarmUp) -> None:
        started = time.monotonic_ns()
        joiner = self._shadow(order.slot, order.records, bound_for=None)
        if joiner is None:
            return
        ended = self._run_in_sandbox(joiner)
        if not ended.unwound:
            self.link.say(SandboxFailed(rank=joiner.rank, reason=_shadow_end(ended, joiner)))
            return
        warm_ms = (time.monotonic_ns() - started) // 1_000_000
        trace, steps = joiner.replayer.trace(), joiner.shadow_steps
        self.link.say(Warm(rank=joiner.rank, shadow_steps=steps, trace=trace, warm_ms=warm_ms))

    def _run_bound(self, order: Bind) -> None:
        """A joiner: in the sandbox until the switchover, then live until the script's end."""
        joiner = self._shadow(order.slot, order.records, bound_for=order.epoch)
        if joiner is None:
            return
        self.member = joiner
        api.serve(joiner)
        ended = run_script(self.spec.argv, module=self.spec.module)
        if self._told_to_leave(ended, order.epoch):
            self._leave(joiner)
        elif joiner.is_shadow:
            self._forget(joiner)
            self.link.say(SandboxFailed(rank=joiner.rank, reason=_shadow_end(ended, joiner)))
        else:
            self._report(joiner, ended)

    def _shadow(
        self, slot: Slot, records: dict[Rank, list[str]], *, bound_for: int | None
    ) -> Joiner | None:
        rank = self._take_slot(slot)
        try:
            record = self._fetch_record(rank, records)
        except TrainmoverError as error:
            self.link.say(SandboxFailed(rank=rank, reason=str(error).split("\n")[0]))
            return None
        groups.rendezvous_store = HashStore
        groups.sandbox()
        return Joiner(
            rank=rank,
            spec=self.spec,
            token=self.token,
            standing=self.standing,
            say=self.link.say,
            server=self.server,
            store=self.stores.take,
            record=record,
            bound_for=None if bound_for is None else type(NONE)(bound_for),
        )

    def _fetch_record(self, rank: Rank, records: dict[Rank, list[str]]) -> Record:
        """The rank's own record, or, if that died with its keepers, another rank's: a twin's."""
        twins = [rank, *(other for other in records if other != rank)]
        for twin in twins:
            for address in records.get(twin, []):
                try:
                    client = VaultClient(address, self.token)
                except PeerLost:
                    continue
                try:
                    data = client.get_blob(blob_name(twin))
                except PeerLost:
                    continue
                finally:
                    client.close()
                if data is not None:
                    return replace(Record.from_bytes(bytes(data)), rank=rank)
        raise PeerLost("no machine holds a record of the first steps")

    def _run_in_sandbox(self, joiner: Joiner) -> Ended:
        api.serve(joiner)
        ended = run_script(self.spec.argv, module=self.spec.module)
        self._forget(joiner)
        return ended

    def _forget(self, member: Member) -> None:
        """The run is over: drop model, groups and connections, keep the process warm."""
        api.serve(None)
        self.member = None
        member.keeper.close()
        member.forget()
        with self.standing.changed:
            self.standing.live = False
            self.standing.committed = self.standing.gate = Step(0)
        clean_up()

    def _run_and_report(self, member: Member) -> None:
        api.serve(member)
        ended = run_script(self.spec.argv, module=self.spec.module)
        if self._told_to_leave(ended, NONE):
            self._leave(member)
        else:
            self._report(member, ended)

    def _told_to_leave(self, ended: Ended, bound_for: Epoch) -> bool:
        """Whether the run ended because the rank lives elsewhere: also if the script's own
        clean-up made something else of the unwinding."""
        standing = self.standing
        return ended.unwound or standing.leave >= max(bound_for, standing.epoch + 1)

    def _leave(self, member: Member) -> None:
        self._forget(member)
        self.link.say(Left())

    def _report(self, member: Member, ended: Ended) -> None:
        """Say how the script ended; stay as a source of state until told to exit."""
        if ended.error:
            if not api.attached() or groups.draining:
                time.sleep(UNATTACHED_GRACE_S)  # A lost peer may be the cause: it is said first.
            member.finish()
            self.link.say(
                Raised(
                    rank=member.rank,
                    step=max(member.calls, member.begun),
                    error=ended.error,
                    traceback=ended.traceback,
                )
            )
            self._await_end()
            return
        member.finish()
        digest = member.tracked.digest() if api.attached() else ""
        _flush_output()
        self.link.say(
            Finished(
                rank=member.rank,
                step=self.standing.committed,
                code=ended.code,
                digest=digest,
                attached=api.attached(),
            )
        )
        self._stay(member)

    def _stay(self, member: Member) -> None:
        """The script is done, the job may not be: take part in switchovers until `Exit`."""
        standing = self.standing
        while True:
            with standing.changed:
                while not standing.exit and not standing.pending:
                    standing.changed.wait()
                if standing.exit:
                    break
            try:
                member.settle()
            except Unwind:  # The last script ended while a switchover was under way.
                break
        self._forget(member)

    def _await_end(self) -> None:
        with self.standing.changed:
            while not self.standing.exit:
                self.standing.changed.wait()

    def attached(self) -> None:
        """Called when the script attaches."""
        if self.member is not None and not self.member.is_shadow:
            self.link.say(Attached(rank=self.member.rank))


def _shadow_end(ended: Ended, joiner: Joiner) -> str:
    if ended.error:
        return f"the script raised in the sandbox: {ended.error}"
    return f"the script ended in the sandbox after {joiner.shadow_steps} steps"


def _short(reason: str) -> str:
    """What gloo says, without its advice."""
    return reason.split("\n")[0].split(". This is typically")[0]


def _flush_output() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _die_with_agent() -> None:
    """SIGKILL when the agent dies, so that a fenced machine has no workers."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    agent = os.environ.get("TRAINMOVER_AGENT_PID")
    if agent is not None and os.getppid() != int(agent):
        os._exit(1)


def _hook_optimizers(worker: Worker) -> None:
    """The gate is the pre-hook of the first outermost `optimizer.step()` of a step."""

    def before(*_: object) -> None:
        if worker.member is not None:
            worker.member.enter_update()

    def after(*_: object) -> None:
        if worker.member is not None:
            worker.member.leave_update()

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def main() -> None:
    """Run one worker process; ends with the exit status of the script's last run."""
    _die_with_agent()
    spec = msgspec.msgpack.decode(Path(os.environ["TRAINMOVER_SPEC"]).read_bytes(), type=JobSpec)
    token = Path(os.environ["TRAINMOVER_TOKEN_FILE"]).read_bytes().strip()
    link = ControlLink(int(os.environ["TRAINMOVER_CONTROL_FD"]))
    hook_torch(groups)
    watch_wrappers()
    worker = Worker(spec, token, int(os.environ["LOCAL_RANK"]), link)
    _hook_optimizers(worker)
    api.on_attach(worker.attached)
    sys.path[0] = ""
    worker.run()
    _leave()


def _leave() -> None:
    """End as python ends, but for C++ destructors: gloo's threads do not survive those."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()
    _flush_output()
    os._exit(0)
