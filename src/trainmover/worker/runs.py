# SPDX-License-Identifier: Apache-2.0
"""The runs of the script in this process, one after another, as the job's controller orders them.

Live as a rank; as a warm-up in the sandbox; or bound as a joiner, which becomes live.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

import torch.distributed as dist

from trainmover.comm import DeviceLost, groups
from trainmover.errors import PeerLost, ProtocolError, TrainmoverError
from trainmover.graph.caches import keep_entries_in_python
from trainmover.graph.script import Script
from trainmover.ids import Epoch, Rank, Slot
from trainmover.loops.importer import LoopFinder
from trainmover.loops.turns import set_way_back
from trainmover.protocol.messages import (
    Attached,
    Bind,
    Finished,
    Hold,
    Left,
    Raised,
    Records,
    RunRank,
    SandboxFailed,
    Warm,
    WarmUp,
    Warned,
)
from trainmover.sandbox import reasons
from trainmover.sandbox.binding import Binding, binding_of
from trainmover.sandbox.process import memory
from trainmover.sandbox.process.isolation import Isolation
from trainmover.sandbox.process.modules import is_own_file
from trainmover.sandbox.process.opened import Opened
from trainmover.sandbox.record import Record
from trainmover.sandbox.recorder import Recorder
from trainmover.state import rng
from trainmover.torch_internals.distributed.c10d import HashStore, PrefixStore
from trainmover.worker import api
from trainmover.worker.auto.loop import Auto
from trainmover.worker.control import Control
from trainmover.worker.join.joiner import Joiner
from trainmover.worker.join.rollback import InPlace, Orders, Rollback
from trainmover.worker.join.shadow import Shadow, never_due
from trainmover.worker.join.taken import Shelf, compiled_elsewhere, first_steps
from trainmover.worker.join.way.trial import Trials
from trainmover.worker.keep import compiled
from trainmover.worker.last_words import end_as_lost
from trainmover.worker.member import Member
from trainmover.worker.program import Ended, clean_up, flush_output, run_script
from trainmover.worker.standing import NONE, Unwind
from trainmover.worker.station import Station
from trainmover.worker.step.keeper import RankRecord
from trainmover.worker.step.ledger import Ledger
from trainmover.worker.watch.patience import Patience

UNATTACHED_GRACE_S = 3.0
"""A script that never attached raises when a peer dies; the machine's loss is known by then."""
REASON_GRACE_S = 10.0
"""For another worker of the machine to say why it has left the run."""
_NO_LOOP = (
    "the script trains in no loop that could be rewritten, and has not called "
    "trainmover.attach(): nothing is protected, and a lost machine starts it again from nothing. "
    "Train in a loop of a file, or call attach(), track() and step as in examples/gpt.py"
)
_DESERTED = "another worker of this machine has left the sandbox without saying why"


class Runs:
    """What the main thread does. `go_on` returns when the process is to exit.

    auto  sees to a script that never names trainmover, while one runs
    """

    def __init__(self, station: Station, control: Control) -> None:
        self._station = station
        self._control = control
        self._spec = station.spec
        self._standing = station.standing
        self._say = station.link.say
        self._ran_well = False
        self._broken_off: Ledger | None = None
        self._took_compiled = False
        self._trials = Trials()
        self._shelf: Shelf = {}
        self._isolation = Isolation()
        self._opened = Opened(self._isolation.overlay)
        self._told: set[str] = set()
        self._has_left = False  # The rank's place, while its script runs on.
        self.auto: Auto | None = None

    def go_on(self) -> None:
        """Do as told until told to exit."""
        keep_entries_in_python(Script(is_own_file))
        LoopFinder(repeats=False).install()
        while (work := self._control.next_work()) is not None:
            match work:
                case RunRank():
                    self._live(work)
                case WarmUp():
                    self._warm_up(work)
                case Hold():
                    self._join(work, holds=True)
                case Bind():
                    self._join(work, bound_for=work.epoch)

    def attached(self) -> None:
        """Called when the script attaches."""
        if self.auto is not None:
            self.auto.attached()
        member = self._control.member
        if member is not None and not member.is_shadow:
            self._say(Attached(rank=member.rank))

    # --- three kinds of runs ----------------------------------------------------------------------

    def _live(self, order: RunRank) -> None:
        rank = self._take_slot(order.slot)
        self._station.snapshots.clear()
        station, standing = self._station, self._standing
        at = f"script/{order.epoch}"
        groups.rendezvous_store = lambda: PrefixStore(at, station.torchs.take())
        groups.use_store(station.stores.take(), order.epoch)
        with standing.changed:
            standing.begin(order.epoch)
        member = Member(rank, self._station)
        self._may_roll_back(member)
        member.ledger.first_of = order.epoch
        full = self._spec.record == "full"
        member.recording.recorder = groups.tap = Recorder(rank, self._binding(), full=full)
        self._control.member = member
        member.deposit.follow(order.buddies[rank], order.epoch, order.further.get(rank, ""))
        ended = self._run(member)
        if self._has_failed_in_place(member):
            return
        if self._told_to_leave(ended, NONE):
            self._leave(member)
        else:
            self._report(member, ended)

    def _warm_up(self, order: WarmUp) -> None:
        started = time.monotonic_ns()
        # The job may have started anew since, or compiled more: a warm-up proves what is true.
        self._shelf.clear()
        self._took_compiled = False
        joiner = self._joiner(order, is_due=self._trials.are_due)
        if joiner is None:
            return
        shadow = joiner.shadow
        ended = self._run(joiner.member, joiner)
        deserted = self._part(shadow)
        trace = shadow.replayer.trace()
        self._forget(joiner.member)
        if shadow.given_up:
            return
        if deserted:
            self._await_reason(shadow)
            return
        if _has_failed(joiner, ended):
            self._sandbox_failed(joiner, ended)
            return
        self._ran_well = True
        if shadow.tries is not None:
            self._trials.note(joiner.rank, shadow.tries)
        warm_ms = (time.monotonic_ns() - started) // 1_000_000
        self._say(
            Warm(
                rank=joiner.rank,
                shadow_steps=shadow.steps,
                trace=trace,
                warm_ms=warm_ms,
                held_bytes=shadow.held_bytes,
                device_bytes=shadow.device_bytes,
            )
        )

    def _join(
        self, order: Hold | Bind, *, bound_for: Epoch | None = None, holds: bool = False
    ) -> None:
        """A joiner: in the sandbox until the switchover, then live until the script's end."""
        due = self._trials.are_due if self._may_try(order) else never_due
        joiner = self._joiner(order, bound_for=bound_for, holds=holds, is_due=due)
        if joiner is None:
            return
        member, shadow = joiner.member, joiner.shadow
        self._may_roll_back(member)
        joiner.takeover.broken_off, self._broken_off = self._broken_off, None
        if joiner.takeover.broken_off is not None and isinstance(order, Bind):
            self._all_roll_back(order, member.rank, in_place=False)
        with self._standing.changed:
            self._control.member, self._control.joiner = member, joiner
        self._control.part_if_recalled()
        ended = self._run(member, joiner)
        joiner.takeover.direct.close()
        if self._part(shadow):
            self._forget(member)
            self._await_reason(shadow)
        elif shadow.refusal.why and joiner.takeover.has_an_order:
            self._lacks(joiner, shadow.refusal.why)
        elif shadow.bound_for is None or shadow.refusal.why:
            self._forget(member)
            if shadow.refusal.why or not ended.unwound:
                self._sandbox_failed(joiner, ended)
            elif shadow.outdated is not None and self._try_way(order, shadow.outdated):
                self._join(order, holds=True)
        elif self._has_failed_in_place(member):
            return
        elif self._told_to_leave(ended, shadow.bound_for):
            self._leave(member)
        elif member.is_shadow:
            self._end_on_the_way(joiner, ended)
        else:
            self._report(member, _ended_well(joiner, ended))

    def _may_try(self, order: Hold | Bind) -> bool:
        """Whether a run that is held may give way to a trial, and be made again: by this process
        alone, which has run the script more than once."""
        return isinstance(order, Hold) and self._spec.nproc == 1 and self._ran_well

    def _try_way(self, order: Hold | Bind, there: RankRecord) -> bool:
        """Whether a run here comes to where its rank has come: see `trial`. False if not, or if
        other work waits."""
        joiner = self._joiner(order, yields=True, is_due=lambda rank, record: True)
        if joiner is None:
            return False
        self._trials.note(joiner.rank, there)
        ended = self._run(joiner.member, joiner)
        self._part(joiner.shadow)
        self._forget(joiner.member)
        if joiner.shadow.given_up:
            return False
        if _has_failed(joiner, ended):
            self._sandbox_failed(joiner, ended)
            return False
        with self._standing.changed:
            return not (self._standing.recalled or self._standing.exit)

    def _end_on_the_way(self, joiner: Joiner, ended: Ended) -> None:
        """The run is over and the rank's place not taken."""
        if joiner.takeover.has_an_order:
            self._lacks(joiner, _shadow_end(ended, joiner, again=False))
            return
        self._forget(joiner.member)
        self._sandbox_failed(joiner, ended)

    def _lacks(self, joiner: Joiner, why: str) -> None:
        """Its rank was lost with what nobody else has: all go back to a snapshot, and so does this
        process, in another run."""
        joiner.takeover.lacks(why)
        self._leave(joiner.member)

    def _part(self, shadow: Shadow) -> bool:
        """The machine's other workers may wait in the sandbox for one whose run has ended too soon:
        let them go. True if it was the other way round, and nothing of this run counts."""
        if shadow.complete:
            return False
        deserted = groups.deserted and not shadow.given_up
        groups.desert("its run in the sandbox has ended")
        return deserted

    def _await_reason(self, shadow: Shadow) -> None:
        """The worker that left the run first says why, or has died, or all are called elsewhere. If
        nothing of that is heard of, the machine must not wait for ever."""
        if not self._control.told_within(REASON_GRACE_S, shadow.bound_for):
            self._say(SandboxFailed(rank=shadow.member.rank, reason=_DESERTED))
        elif shadow.bound_for is not None and self._standing.leave >= shadow.bound_for:
            self._say(Left())

    def _sandbox_failed(self, joiner: Joiner, ended: Ended) -> None:
        if refused := joiner.shadow.refusal.why:  # Any other process would be refused too.
            self._say(SandboxFailed(rank=joiner.rank, reason=refused))
            return
        arrives = joiner.takeover.way is not None  # Its run went well, and what followed did not.
        again = self._ran_well and not arrives and not joiner.shadow.opened.newer
        reason = _shadow_end(ended, joiner, again=again)
        self._say(SandboxFailed(rank=joiner.rank, reason=reason, again=again))

    def _joiner(self, order: WarmUp | Hold | Bind, **purpose: Any) -> Joiner | None:
        """The runtime of a run in the sandbox; None if there is no record to serve it from.

        purpose: see `Shadow`
        """
        rank, records = self._take_slot(order.slot), order.records
        if knows_other := self._isolation.known_rank.other_than(rank):
            self._say(SandboxFailed(rank=rank, reason=knows_other, again=True))
            return None
        try:
            token, binding = self._station.token, self._binding()
            record = first_steps(rank, records, token, binding, self._shelf)
        except TrainmoverError as error:
            self._say(SandboxFailed(rank=rank, reason=str(error).split("\n")[0]))
            return None
        if too_little := self._too_little_memory(record):
            self._say(SandboxFailed(rank=rank, reason=too_little))
            return None
        self._take_compiled(rank, records)
        groups.rendezvous_store = HashStore
        groups.sandbox(order.run, lambda: self._station.stores.take())
        self._opened.begin(record.begun_ns)
        shadow = Shadow(
            Member(rank, self._station, is_shadow=True),
            record,
            token,
            opened=self._opened,
            run=order.run,
            known_ms=order.known_ms,
            places=records,
            leave_no_traces=lambda: self._isolation.leave_no_traces(_unwind),
            overlay=self._isolation.overlay,
            **purpose,
        )
        return Joiner(shadow, token)

    def _take_compiled(self, rank: Rank, records: Records) -> None:
        """Before this process compiles, take what others have compiled."""
        if self._took_compiled:
            return
        self._took_compiled = True
        try:
            data = compiled_elsewhere(rank, records, self._station.token)
            if data is not None:
                compiled.unpack(data)
        except ProtocolError as error:
            self._say(Warned(rank=rank, text=f"{error.happened} {error.means}"))

    def _too_little_memory(self, record: Record) -> str:
        """Why this machine cannot hold what the recorded rank held; "" if it can."""
        return memory.too_little(
            record.held_bytes,
            held=memory.private_bytes(),
            left=memory.left_bytes(),
            processes=self._spec.nproc,
        )

    def _binding(self) -> Binding:
        """What the run about to begin is a run of."""
        spec = self._spec
        return binding_of(
            spec.argv, module=spec.module, world_size=spec.world_size, nproc=spec.nproc
        )

    def _take_slot(self, slot: Slot) -> Rank:
        """RANK and its kin, as torchrun sets them."""
        rank = self._spec.ranks(slot)[self._station.local_rank]
        os.environ.update(RANK=str(rank), ROLE_RANK=str(rank), GROUP_RANK=str(slot))
        groups.place(rank, self._spec.ranks(slot))
        return rank

    def _run(self, member: Member, joiner: Joiner | None = None) -> Ended:
        api.serve(joiner or member)
        self._may_train_by_itself(member, joiner)
        self._station.termination.watch()
        self._isolation.snapshot("" if self._spec.module else self._spec.argv[0])
        rng.seed_as(self._spec.seed, member.rank)
        with self._sandbox(joiner) if joiner is not None else nullcontext():
            ended = run_script(self._spec.argv, module=self._spec.module)
        if self.auto is not None:
            self.auto.end()
            self.auto = None
        if ended.killed:
            end_as_lost(ended.killed)
        if ended.device:
            groups.device_lost(DeviceLost(ended.error))
        member.over = True
        member.early_source.end()
        return ended

    @contextmanager
    def _sandbox(self, joiner: Joiner) -> Iterator[None]:
        """For a shadow run: it may stand still only for so long."""

        def tell(reason: str) -> None:
            self._say(SandboxFailed(rank=joiner.rank, reason=joiner.shadow.opened.newer or reason))

        self._isolation.overlay.begin()
        try:
            with Patience(joiner, tell):
                yield
        finally:
            joiner.end()
            self._tell_of_files(joiner.rank)

    def _tell_of_files(self, rank: Rank) -> None:
        """Once for each place in the script."""
        written = self._opened.written
        if written and written not in self._told:
            self._told.add(written)
            self._say(Warned(rank=rank, text=written))

    # --- scripts that never name trainmover -------------------------------------------------------

    def _may_train_by_itself(self, member: Member, joiner: Joiner | None) -> None:
        if not self._spec.auto:
            return
        shadow = None if joiner is None else joiner.shadow
        self.auto = Auto(member, joiner or member, shadow, self._tell_of_no_loop)
        self.auto.begin()

    def _tell_of_no_loop(self) -> None:
        member = self._control.member
        if member is not None and member.rank == 0 and _NO_LOOP not in self._told:
            self._told.add(_NO_LOOP)
            self._say(Warned(rank=member.rank, text=_NO_LOOP))

    # --- rollback in place ------------------------------------------------------------------------

    def _may_roll_back(self, member: Member) -> None:
        orders = Orders(self._leave_in_place, self._joins_in_place)
        member.rollback = rollback = Rollback(member, orders, self._station.token)
        set_way_back(rollback.goes_on)

    def _leave_in_place(self, member: Member) -> Bind | None:
        """Say that the rank has left its place, though its script runs on. Returns what binds it
        again; None: there is other work."""
        with self._standing.changed:
            self._standing.end_run()
            self._control.member = self._control.joiner = None
        member.keeper.close()
        self._has_left = True
        self._say(Left())
        work = self._control.next_work()
        if isinstance(work, Bind) and self._all_roll_back(work, member.rank, in_place=True):
            self._has_left = False
            return work
        self._control.give_back(work)
        return None

    def _all_roll_back(self, bind: Bind, rank: Rank, *, in_place: bool) -> bool:
        """Tell the machine's other workers whether this one goes back in place. Returns whether all
        do: in the sandbox they would need each other."""
        ranks = self._spec.ranks(bind.slot)
        if len(ranks) == 1 or rank not in ranks:
            return in_place and rank in ranks
        key = f"rollback/{bind.epoch}/{bind.run}"
        try:
            store = self._station.stores.take()
            store.set(f"{key}/{rank}", "1" if in_place else "0")
            return in_place and all(store.get(f"{key}/{other}") == b"1" for other in ranks)
        except (PeerLost, dist.DistError):
            return False

    def _joins_in_place(self, place: InPlace) -> None:
        with self._standing.changed:
            self._control.member, self._control.joiner = place.member, place

    def _has_failed_in_place(self, member: Member) -> bool:
        """Whether the run ended while its rank went back in place: a fresh process takes the rank
        then, in the sandbox."""
        place = self._control.joiner
        if not (member.is_shadow and isinstance(place, InPlace) and place.failed):
            return False
        self._forget(member)
        reason = f"going back in place failed: {place.failed}"
        self._say(SandboxFailed(rank=member.rank, reason=reason, again=True))
        return True

    # --- how a run ends ---------------------------------------------------------------------------

    def _told_to_leave(self, ended: Ended, bound_for: Epoch) -> bool:
        """Whether the run ended because the rank lives elsewhere: also if the script's own
        clean-up made something else of the unwinding."""
        return ended.unwound or self._standing.leaves(bound_for)

    def _leave(self, member: Member) -> None:
        self._broken_off = member.ledger if self._standing.goes_back else None
        if self._standing.goes_back and (record := member.recording.kept.record) is not None:
            self._shelf[member.rank] = bytearray(record)  # Whoever kept it may be who is lost.
        self._forget(member)
        self._ran_well = True
        has_left, self._has_left = self._has_left, False
        if not has_left:
            self._say(Left())

    def _forget(self, member: Member, *, last: bool = False) -> None:
        """The run is over: drop model, groups and connections, keep the process warm.

        last: what it has set up is what the process ends with.
        """
        with self._standing.changed:
            self._standing.end_run()
            self._control.member = self._control.joiner = None
        api.serve(None)
        set_way_back(None)
        if not self._standing.goes_back:
            self._station.snapshots.spare_room()
        member.keeper.close()
        member.forget()
        clean_up(last=last)
        if not last:
            self._tell(member.rank, self._isolation.put_back())

    def _tell(self, rank: Rank, left_behind: list[str]) -> None:
        """Once for each kind of thing."""
        for what in left_behind:
            kind = re.sub(r"\d+", "", what)
            if kind not in self._told:
                self._told.add(kind)
                machine = os.environ.get("TRAINMOVER_MACHINE", "this machine")
                text = f"the script's run on {machine} is over, but {what}"
                self._say(Warned(rank=rank, text=text))

    def _report(self, member: Member, ended: Ended) -> None:
        """Say how the script ended; stay as a source of state until told to exit."""
        if ended.error or (ended.code and member.boundary.cut_short):
            self._report_error(member, ended)
            self._standing.await_exit()
            return
        member.ledger.close()
        digest = member.tracked.digest() if api.attached() else ""
        flush_output()
        with self._standing.changed:
            last = self._standing.finish()
        self._say(
            Finished(
                rank=member.rank,
                step=last,
                code=ended.code,
                digest=digest,
                attached=api.attached(),
            )
        )
        self._stay(member)

    def _report_error(self, member: Member, ended: Ended) -> None:
        misled = api.attached() and member.boundary.cut_short
        if not misled and (not api.attached() or groups.draining):
            time.sleep(UNATTACHED_GRACE_S)  # A lost peer may be the cause: it is said first.
        member.ledger.close()
        self._say(
            Raised(
                rank=member.rank,
                step=max(member.calls, member.begun),
                error=ended.error or f"SystemExit: {ended.code}",
                traceback=ended.traceback,
                misled=misled,
            )
        )

    def _stay(self, member: Member) -> None:
        """The script is done, the job may not be: take part in switchovers until `Exit`."""
        standing = self._standing
        while standing.until(standing.after_the_end):
            try:
                member.boundary.settle()
            except Unwind:  # The last script ended while a switchover was under way.
                if standing.goes_back:
                    self._leave(member)
                    return
                break
        self._forget(member, last=True)


def _unwind() -> NoReturn:
    raise Unwind


def _has_failed(joiner: Joiner, ended: Ended) -> bool:
    """A warm-up. How a trial ends that has set out, and refuses nothing, says nothing."""
    set_out = joiner.takeover.way is not None
    return bool(joiner.shadow.refusal.why) or not (ended.unwound or set_out)


def _ended_well(joiner: Joiner, ended: Ended) -> Ended:
    """Unless the lines behind its rank's last step have changed what they must not: see `Tail`."""
    tail = joiner.takeover.tail
    if tail is None or ended.error or ended.code:
        return ended
    try:
        tail.check()
    except TrainmoverError as error:
        return Ended(code=1, error=str(error).replace("\n", " "))
    return ended


def _shadow_end(ended: Ended, joiner: Joiner, *, again: bool) -> str:
    shadow = joiner.shadow
    if shadow.opened.newer:  # Whatever came of it.
        return shadow.opened.newer
    if ended.error:
        return reasons.why(ended.error, ended.where, again=again)
    if joiner.takeover.journey is not None:
        return (
            f"on its way to where rank {joiner.rank} stood the script ended: whether it goes on "
            "behind a pass follows from values that are others there, such as an evaluation's: "
            "leave its loops only where `job.is_shadow` is false"
        )
    return (
        f"the script ended in the sandbox after {shadow.steps} steps, where rank "
        f"{joiner.rank} went on to a fetch behind step {shadow.recorded}"
    )
