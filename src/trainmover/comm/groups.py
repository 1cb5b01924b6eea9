# SPDX-License-Identifier: Apache-2.0
"""All groups of this process: which epoch they are in, and how they get to the next one.

    PLAIN    no runtime. Groups connect when they are made; errors are raised as stock gloo does.
    SANDBOX  groups have no peers, but for those whose ranks are all on this machine. What needs
             other machines is answered by the tap, or it is a loud error.
    LIVE     groups connect under the epoch's store; a lost peer drains instead of raising.

*Draining* is the time between the end of one epoch and the switchover to the next. It begins in one
moment for all groups: under one lock the flag is set and every session is marked as released, so a
call either started before, and is ended by the drain, or starts after, and completes at once.

Groups connect one after the other: private ones first, then the script's in the order of their
places (`places`). That is the same in every process, so ranks never wait in a circle.
"""

import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from trainmover.comm import device_end
from trainmover.comm.calls.arguments import describe
from trainmover.comm.calls.tap import Call, Tap
from trainmover.comm.calls.threads import in_background
from trainmover.comm.calls.watch import Watch, wait_for_stranded
from trainmover.comm.choice import Waits, communicator_named, waits_of
from trainmover.comm.communicator import Communicator
from trainmover.comm.failures import (
    CallsDiffer,
    DeviceLost,
    Drained,
    ReplayMismatch,
    means_lost_device,
    means_lost_peer,
)
from trainmover.comm.gloo.communicator import GlooCommunicator
from trainmover.comm.meet.coming import Coming
from trainmover.comm.meet.inside import Inside
from trainmover.comm.meet.places import Roll, line_of_script
from trainmover.comm.meet.preparation import Preparation
from trainmover.comm.member import Member
from trainmover.comm.objects import Objects
from trainmover.comm.positions import positions, received, waits
from trainmover.comm.private import PrivateGroup
from trainmover.comm.progress import pace
from trainmover.comm.roster import Roster, in_words
from trainmover.comm.shim import ShimGroup
from trainmover.comm.solo import SoloCommunicator
from trainmover.comm.stats import CommStats, SwitchStats
from trainmover.communicators import STAGED, checked_gpu
from trainmover.errors import PeerLost, TrainmoverError, UserError
from trainmover.torch_internals.autograd import in_backward
from trainmover.torch_internals.distributed.c10d import Store

if TYPE_CHECKING:
    from trainmover.comm.nccl.pair import Pairing

_STRANDED_NS = 50_000_000
_PLAIN_EPOCH = 0
APART_S = 60.0
"""So long a call waits for a group to be made by those who lack it: they have to come to that line,
which others have passed in an earlier step."""


class Mode(Enum):
    PLAIN = "plain"
    SANDBOX = "sandbox"
    LIVE = "live"


def _ended_together() -> AbstractContextManager[None]:
    """What is aborted within it ends as one, where a communicator asks for that."""
    nccl = sys.modules.get("trainmover.comm.nccl.ending")
    return nullcontext() if nccl is None else nccl.endings.together()


def _in_the_script() -> bool:
    """Whether this is the main thread, outside of autograd."""
    return threading.get_ident() == threading.main_thread().ident and not in_backward()


class Groups:
    """The registry. One per process, because torch has one world per process.

    on_cut_short  called, in whichever thread, for every call of the script that ends without its
                  outputs
    on_given_up   called in the main thread, outside of autograd, wherever it is about to go on with
                  what such a call has left; what it raises, the script sees at that call
    on_device_lost  called when the device answers with errors, or does not end what was begun
    on_call       called for every call of the script, before it is made
    objects       that came in a run in the sandbox
    waits         what this process has waited for other ranks; None: nobody counts
    on_device     whether calls of some group go on after they have returned, on a device
    calls         of the script, begun so far. Two numbers tell whether there were any between;
                  with several threads one may be missed in the sum, never in the comparison
    """

    def __init__(self, communicator: Callable[[], Communicator] = GlooCommunicator) -> None:
        self.mode = Mode.PLAIN
        self.epoch = _PLAIN_EPOCH
        self.draining = False
        self.tap: Tap | None = None
        self.on_broken: Callable[[str], None] | None = None
        self.on_cut_short: Callable[[], None] | None = None
        self.on_given_up: Callable[[], None] | None = None
        self.on_device_lost: Callable[[str], None] | None = None
        self.on_call: Callable[[], None] | None = None
        self.objects = Objects()
        self.calls = 0
        self.waits: Waits | None = None
        self.differed: CallsDiffer | None = None  # Seen; no further try of the step mends it.
        self.rendezvous_store: Callable[[], Store] | None = None
        self.watching = False
        self._drain_on_error = False
        self._communicator = communicator
        self.gpu = STAGED
        self.on_device = False
        self._lock = threading.RLock()
        self.roster = Roster(self._lock)
        self._rolls: list[Roll] = []
        self._meets_apart = threading.Lock()
        self._rank = -1
        self._neighbours: frozenset[int] = frozenset()
        self._store: Store | None = None
        self._inside: Inside | None = None
        self._coming = Coming(self._lock)
        self._drains = 0
        self._drain_ns_last = 0
        self._switches = 0
        self._last: SwitchStats | None = None

    # What the runtime says before the script runs.

    def choose(self, name: str, token: bytes | None = None, gpu: str = STAGED) -> None:
        """Carry every group made from now on by the communicator of that name.

        token  the job's secret; None in a process without a runtime. Raises UserError for a name
        that is none, for one that is not built, and when there are groups already.
        gpu    what carries tensors of a GPU where the script asks for nccl
        """
        if self.roster:
            raise UserError(
                f"communicator {name} was chosen when groups were there already",
                do="choose it before the first group is made",
            )
        self._communicator = communicator_named(name, token)
        self.gpu = checked_gpu(gpu, name)
        self.waits = waits_of(name) if gpu == STAGED else None

    @property
    def drain_on_error(self) -> bool:
        """A lost peer ends the epoch instead of raising. Then calls are also *watched*: their
        handles end with the epoch. Watching alone keeps stock behaviour."""
        return self._drain_on_error

    @drain_on_error.setter
    def drain_on_error(self, value: bool) -> None:
        self._drain_on_error = value
        self.watching = self.watching or value

    def place(self, rank: int, ranks: Sequence[int]) -> None:
        """This process is to be `rank`, its machine has `ranks`: in groups made from now on."""
        self._rank, self._neighbours = rank, frozenset(ranks)

    def use_store(self, store: Store, epoch: int) -> None:
        """Groups created from now on connect under `epoch` in `store`: LIVE."""
        with self._lock:
            if epoch < self._coming.newest:
                raise Drained(f"epoch {epoch} is older than {self._coming.newest}")
            self._coming.order(epoch)
            self.mode, self.epoch, self._store = Mode.LIVE, epoch, store
            self.drain_on_error = True

    def store_moved(self, store: Store) -> None:
        """What `use_store` was given is gone. Who is connecting there fails, and says so."""
        with self._lock:
            if self._store is not None:
                self._store = store

    def sandbox(self, run: int = 0, store: Callable[[], Store] | None = None) -> None:
        """Groups created from now on have no peers until the first switchover, but for those of
        this machine's ranks alone: they meet in what `store` gives. See `Inside`."""
        with self._lock:
            self.mode, self._store = Mode.SANDBOX, None
            self._inside = None if store is None else Inside(run, store, self._carrier)
            self.drain_on_error = True

    @property
    def deserted(self) -> bool:
        """Whether a run in the sandbox has lost one of the machine's other workers, or the other
        way round: what it computes is garbage."""
        return self.mode is Mode.SANDBOX and self.draining

    @property
    def meeting_inside(self) -> bool:
        """Whether a run in the sandbox waits for one of the machine's other workers to come."""
        inside = self._inside
        return inside is not None and inside.meeting

    def desert(self, why: str) -> None:
        """A run in the sandbox ends before its time: the machine's other workers, who may wait for
        this one, learn it. Of no effect elsewhere."""
        if self.mode is Mode.SANDBOX:
            self._end_epoch(why, report=False)

    # Groups come and go.

    def create(
        self,
        name: str,
        seat: int,
        size: int,
        timeout: timedelta,
        store: Store,
        ranks: tuple[int, ...] = (),
        *,
        device: Any = None,
        shown_as: str = "gloo",
    ) -> ShimGroup:
        """A group for torch, connected unless draining or, in the sandbox, without its peers.
        Blocks for its peers. ranks: who has which seat; () if that is not known.

        device    whose tensors NCCL is to carry; None: all go over the host
        shown_as  the backend that the script has asked for
        """
        if self.mode is Mode.SANDBOX and device is not None:
            self._warm_up(device)
        member = self._admit(name, seat, size, timeout, ranks, device=device)
        member.inside = self._stays_inside(ranks, seat)
        if self.mode is not Mode.PLAIN:
            member.made_at = line_of_script()
        if not self.roster.comes_late(member):
            self._connect(member, store)
        group = ShimGroup(self, member, store, shown_as)
        member.shown = weakref.ref(group)
        return group

    def private(
        self, name: str, rank: int, size: int, timeout: timedelta = timedelta(minutes=30)
    ) -> PrivateGroup:
        """A group of ours that torch does not know; it follows every switchover."""
        if self.mode is Mode.PLAIN:
            raise UserError(f"private group {name} needs the epoch's store", do="call use_store")
        member = self._admit(name, rank, size, timeout, private=True)
        self._connect(member, None)
        return PrivateGroup(member, self)

    def _admit(
        self,
        name: str,
        seat: int,
        size: int,
        timeout: timedelta,
        ranks: tuple[int, ...] = (),
        *,
        private: bool = False,
        device: Any = None,
    ) -> Member:
        self.on_device |= device is not None and size > 1
        carrier = self._carrier(size, device)
        member = Member(name, seat, size, timeout, carrier, private, ranks=ranks, device=device)
        self.roster.add(member)
        return member

    def _carrier(self, size: int, device: Any) -> Communicator:
        if size == 1:
            return SoloCommunicator()
        if device is None:
            return self._communicator()
        from trainmover.comm.by_device import ByDevice  # Nobody pays for it who does not use it.

        return ByDevice(self._communicator(), device)

    @staticmethod
    def _warm_up(device: Any) -> None:
        from trainmover.comm.nccl.communicator import warm_up  # As with `ByDevice`.

        warm_up(device)

    def _stays_inside(self, ranks: tuple[int, ...], seat: int) -> bool:
        """A world in which this process has another rank than the job's has other numbers."""
        return bool(ranks) and ranks[seat] == self._rank and self._neighbours.issuperset(ranks)

    def pairing(self) -> "Pairing | None":
        """By which state goes from this process's device to another's; None if none of its groups
        talks from one. Raises UserError where libnccl is gone."""
        device = next((one.device for one in self.roster if one.device is not None), None)
        if device is None:
            return None
        from trainmover.comm.nccl.pair import Pairing  # As with `ByDevice`.

        return Pairing(device)

    def remove(self, member: Member) -> None:
        """Forget a group. In LIVE its end costs the caller nothing; in PLAIN it ends with its
        last reference, as a stock group does."""
        with self._lock:
            if member not in self.roster or not self.roster.remove(member):
                return
            if self.mode is Mode.PLAIN:
                return
            watch, member.watch = member.watch, None
            inside, held = self._inside, self._coming.holds(member)
        if not held:
            member.communicator.close()
        if inside is not None:
            inside.part(member)
        if watch is not None:
            watch.release()

    def _connect(self, member: Member, store: Store | None) -> None:
        if self.draining:
            return
        try:
            if self.mode is Mode.SANDBOX:
                self._connect_inside(member)
            elif self.mode is Mode.LIVE:
                self._connect_live(member)
            elif store is not None:
                view = member.view(_PLAIN_EPOCH, store, fenced=False)
                member.communicator.prepare(view)
                self._exchange(member, _PLAIN_EPOCH)
        except TrainmoverError:
            self.remove(member)
            raise

    def _connect_inside(self, member: Member) -> None:
        """A drain meanwhile leaves the group unconnected, as in `_connect_live`."""
        inside = self._inside
        if inside is None or not member.inside:
            return
        try:
            session = inside.connect(member)
        except Drained:
            return
        except PeerLost as lost:
            self._end_epoch(f"group {member.name}: {lost}", report=True)
            return
        with self._lock:
            if self.mode is Mode.SANDBOX and not self.draining:
                member.watch = Watch(session, self, seat=member.seat, private=member.private)

    def _connect_live(self, member: Member, patience_s: float | None = None) -> None:
        """A drain meanwhile leaves the group unconnected; it connects at the switchover."""
        with self._lock:
            if self.draining or self._store is None:
                return
            meets = self.roster.meets(self.epoch, [member])
            preparation = self._coming.add(self.epoch, self._store, meets)
        preparation.start()
        if not preparation.wait(patience_s):
            preparation.cancel()
            preparation.error = None if self.draining else self._absent(member)
        self._coming.drop(preparation)
        with self._lock:
            error = preparation.error
            if error is None and not self.draining:
                self.roster.have_met(preparation.epoch, meets.values())
                self._exchange(member, preparation.epoch)
                return
        if isinstance(error, PeerLost):
            self._end_epoch(f"group {member.name}: {error}", report=True)
        elif error is not None and not isinstance(error, Drained):
            raise error

    def _absent(self, member: Member) -> UserError:
        return UserError(
            f"The group of {in_words(member)} that {member.made_at} has made is missing on a "
            "machine that took a rank since.",
            means="That machine never ran this line, so the call would wait for ever.",
            do="Make groups before the first step, or where they are used: in the step itself, or "
            "there if they are missing.",
        )

    def _exchange(self, member: Member, epoch: int) -> Watch | None:
        """Give the group its session of `epoch`; the watch of the old one."""
        old = member.watch
        member.communicator.switchover(epoch)
        session = member.communicator.session
        assert session is not None
        member.begun = session.sequence_number()
        member.watch = Watch(session, self, seat=member.seat, private=member.private)
        return old

    def begin_step(self) -> int:
        """A step of the script begins; see `Roster.begin_step`."""
        pace.start_step()
        return self.roster.begin_step()

    # The end of an epoch.

    def absorb(self, watch: Watch, error: BaseException) -> bool:
        """See `Owner`."""
        if not watch.released:
            if isinstance(error, CallsDiffer):
                self.differed = error
            if not self._drain_on_error or not means_lost_peer(error):
                return False
            self._end_epoch(str(error), report=True, seen_by=watch)
        if not watch.private:
            self.cut_short()
        return True

    def cut_short(self) -> None:
        """See `Owner`."""
        if self.on_cut_short is not None:
            self.on_cut_short()

    def come_through(self, tainted: Callable[[], bool]) -> bool:
        """Wait until all that the script has begun on a device is done there. False: `tainted` said
        otherwise first, or the epoch has ended over it. Raises DeviceLost.

        The host runs ahead of the device: what it is about to count on may still be on its way, and
        a peer that is lost now would leave garbage in its place.
        """
        if not self.on_device:
            return True
        try:
            come = device_end.come_through(self._on_device(), self.absorb, tainted)
        except DeviceLost as lost:
            self.device_lost(lost)
            raise
        if come:
            pace.finish_step()
        return come

    def await_empty_device(self) -> None:
        """Until nothing that was begun on a device can still write anywhere. Raises DeviceLost."""
        if not self.on_device:
            return
        try:
            device_end.await_empty(self._on_device())
        except DeviceLost as lost:
            self.device_lost(lost)
            raise

    def device_lost(self, lost: Exception) -> None:
        """Tell `on_device_lost`, which ends the process where there is a runtime: whoever takes
        its rank has a device that works."""
        if self.on_device_lost is not None:
            self.on_device_lost(str(lost))

    def _on_device(self) -> list[Watch]:
        members = [member for member in self.roster if member.device is not None]
        return [member.watch for member in members if member.watch is not None]

    def gave_up(self) -> None:
        """See `Owner`. Told to `on_given_up` where that may raise: a thread of the script's is not
        ours to end, and what is raised inside a backward pass comes out as something else."""
        told = self.on_given_up
        if told is not None and _in_the_script():
            told()

    def drain(self, why: str, *, epoch: int | None = None) -> None:
        """End the current epoch: everything that waits completes with what its buffers hold.

        Idempotent, and done in milliseconds whatever the peers do. `epoch` is the one ordered
        next: connecting to anything older is given up, now and later. An order for an epoch that
        has come already is late or doubled, and ignored.
        """
        if epoch is not None:
            if epoch <= self.epoch:
                return
            self._coming.order(epoch)
        self._end_epoch(why, report=False, ordered=epoch)

    def _end_epoch(
        self,
        why: str,
        *,
        report: bool,
        seen_by: Watch | None = None,
        ordered: int | None = None,
    ) -> None:
        """Unless it has ended, or the one that was ordered next has come meanwhile."""
        started = time.perf_counter_ns()
        with self._lock:
            if self.draining or (seen_by is not None and seen_by.released):
                return
            if ordered is not None and ordered <= self.epoch:
                return
            self.draining = True
            watches = [m.watch for m in self.roster if m.watch is not None]
            for watch in watches:
                watch.released = True
            inside = self._inside
            if report and self.on_broken is not None:
                self.on_broken(why)
        pace.discard_step()
        if inside is not None:
            inside.give_up()
        self._coming.discard(0, self.epoch)
        with _ended_together():
            for watch in watches:
                watch.session.abort(why)
        for watch in watches:
            watch.release()
            if watch.prompt is not None and watch.prompt.cut and not watch.private:
                self.cut_short()
        self._drains += 1
        self._drain_ns_last = time.perf_counter_ns() - started

    # The way to the next epoch.

    def prepare(self, epoch: int, store: Store) -> None:
        """Connect all groups to a coming epoch in the background. Idempotent; the newest wins."""
        with self._lock:
            if self._coming.find(epoch) is not None:
                return
            self._coming.check(epoch, self.epoch)
            members = self.roster.lasting() if self.mode is Mode.LIVE else list(self.roster)
            preparation = self._add(epoch, store, members, Roll.FIRST)
        self._coming.discard(self.epoch + 1, epoch - 1)
        preparation.start()

    def prepared(self, epoch: int) -> Preparation:
        """How far phase 1 of `epoch` is: wait(), done(), error, add_done_callback()."""
        return self._coming.get(epoch)

    def discard(self, epoch: int) -> None:
        """The epoch will not come. Never blocks."""
        if epoch > self.epoch:
            self._coming.discard(epoch, epoch)

    def switchover(self, epoch: int, store: Store) -> SwitchStats:
        """Bring all groups into `epoch`: exchange what was prepared, connect the rest now.

        Ends draining and the sandbox. Raises Drained when an even newer epoch was ordered
        meanwhile and PeerLost when a seat does not come; then nothing has changed.
        """
        started = time.perf_counter_ns()
        prepared = self._await_prepared(epoch)
        waited = time.perf_counter_ns()
        met = self._connect_rest(epoch, store, prepared)
        built = time.perf_counter_ns()
        old = [m.watch for m in self.roster if m.watch is not None and m.watch.released]
        stranded = wait_for_stranded(old, lambda: time.perf_counter_ns() < built + _STRANDED_NS)
        with self._lock:
            self._coming.check(epoch, self.epoch)
            left = [
                self._exchange(member, epoch) if member in met else self._part(member)
                for member in self.roster
            ]
            self.mode, self.epoch, self._store = Mode.LIVE, epoch, store
            rolls, self._rolls = self._rolls, [r for r in self._rolls if r.epoch > epoch]
            self.roster.begin_epoch()
            self.roster.learn(at for r in rolls if r.epoch == epoch for at in r.lacking)
            inside, self._inside = self._inside, None
            self.draining = False
        if inside is not None:
            in_background("inside", inside.close)
        served = self._coming.find(epoch)
        if served is not None:
            self._coming.drop(served)
        self._coming.discard(0, epoch)
        for watch in left:
            if watch is not None:
                watch.release()
        count = 0 if prepared is None else len(prepared.met)
        self._last = self._account(epoch, count, (started, waited, built), stranded)
        self._switches += 1
        return self._last

    def _await_prepared(self, epoch: int) -> Preparation | None:
        with self._lock:
            self._coming.check(epoch, self.epoch)
            preparation = self._coming.find(epoch)
        if preparation is not None:
            self._bring_about(preparation)
        return preparation

    def _connect_rest(self, epoch: int, store: Store, prepared: Preparation | None) -> list[Member]:
        """All that have peers in the epoch then. Ranks may differ in whether they prepared it."""
        if prepared is None:
            prepared = self._add(epoch, store, list(self.roster), Roll.FIRST)
            prepared.start()
            self._bring_about(prepared)
            self._coming.drop(prepared)
        known = [m for m in self.roster if m.ranks or m not in prepared.met]
        rest = self._add(epoch, store, known, Roll.LAST, prepared)
        rest.start()
        try:
            self._bring_about(rest)
        finally:
            self._coming.drop(rest)
        return [*prepared.met, *rest.met]

    def _bring_about(self, preparation: Preparation) -> None:
        preparation.wait()
        if preparation.error is not None:
            if means_lost_device(preparation.error):
                self.device_lost(preparation.error)
            raise preparation.error
        names = [preparation.meets[member] for member in preparation.wanted]
        self.roster.have_met(preparation.epoch, names)

    def _add(
        self,
        epoch: int,
        store: Store,
        members: Sequence[Member],
        topic: str,
        before: Preparation | None = None,
    ) -> Preparation:
        """Those of the groups that all their members have meet in the epoch."""
        with self._lock:
            self._coming.check(epoch, self.epoch)
            meets, rank = self.roster.meets(epoch, members), self.roster.rank()
            if rank is None:
                return self._coming.add(epoch, store, meets)
            met = [] if before is None else before.met
            settled = {m: before.meets[m] for m in met if m in meets} if before else {}
            joins = self.mode is Mode.SANDBOX
            roll = Roll(epoch, topic, meets, settled, joins=joins)
            self._rolls.append(roll)

        def call(store: Store) -> list[Member]:
            agreed = roll.agreed(store, rank)
            for member in roll.parted:
                met.remove(member)
                self._begin_anew(member)
            return agreed

        return self._coming.add(epoch, store, meets, call, roll.give_up)

    def _begin_anew(self, member: Member) -> None:
        """It has met, for the coming epoch, groups of which some are gone."""
        with self._lock:
            before = member.communicator
            member.communicator = self._carrier(member.size, member.device)
            watch, member.watch = member.watch, None
        before.close()
        if watch is not None:
            watch.release()

    def _part(self, member: Member) -> Watch | None:
        """Somebody lacks the group: it stays apart until it is called."""
        watch, member.watch = member.watch, None
        return watch

    def _account(
        self, epoch: int, prepared: int, times: tuple[int, int, int], stranded: int
    ) -> SwitchStats:
        links = [member.communicator.stats() for member in self.roster]
        started, waited, built = times
        return SwitchStats(
            epoch=epoch,
            groups=len(links),
            prepared=prepared,
            opened=sum(link.opened for link in links),
            kept=sum(link.kept for link in links),
            closed=sum(link.closed for link in links),
            wait_ns=waited - started,
            build_ns=built - waited,
            exchange_ns=time.perf_counter_ns() - built,
            stranded=stranded,
        )

    # What a call asks that is not simply carried.

    def describe(
        self, member: Member, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Call | None:
        """The call for the tap, numbered; None when nobody listens."""
        if self.tap is None:
            return None
        with self._lock:
            sequence, member.sequence = member.sequence, member.sequence + 1
        call = describe(member.name, sequence, op, args, kwargs)
        call.number, call.size, call.seat = member.number, member.size, member.seat
        call.inside = member.inside
        return call

    def serves(self, call: Call) -> bool:
        """True when the tap has filled the outputs."""
        tap = self.tap
        return tap is not None and tap.serve(call)

    def finished(self, call: Call) -> None:
        """See `Owner`."""
        tap = self.tap
        if tap is not None:
            tap.done(call)

    def connect_apart(self, member: Member, op: str) -> None:
        """For a call on a group without peers: get them. Raises if there can be none; a drain
        leaves it without."""
        if self.draining or member.watch is not None:
            return
        if self.mode is Mode.LIVE and member in self.roster and not self.roster.on_the_way:
            with self._meets_apart:
                if member.watch is None:
                    self.roster.adopt(member)
                    self._connect_live(member, APART_S)
            return
        if self.mode is Mode.SANDBOX:
            raise ReplayMismatch(
                f"{op} of group {member.name} is not in the record",
                means="the script in the sandbox does not do what the recorded rank did",
            )
        raise UserError(f"{op} on group {member.name}, which was destroyed")

    def close(self) -> None:
        """Destroy every group and forget every epoch but its number; back to PLAIN.

        The next run of the script in this process needs a newer epoch: a prefix serves once.
        """
        self.roster.arrive()
        with self._lock:
            members = list(self.roster)
            self.roster.forget_all()
            watches = [member.watch for member in members if member.watch is not None]
            for member in members:
                member.watch = None
            self.mode, self._store, self.tap = Mode.PLAIN, None, None
            inside, self._inside = self._inside, None
            self.differed, self._rolls = None, []
            self.objects.forget()
            self.watching = self._drain_on_error = False
        self._coming.forget_all()
        if inside is not None:
            inside.close()
        for member in members:
            member.communicator.close()
        for watch in watches:
            watch.release()
        self.draining = False

    def positions(self) -> dict[str, int]:
        """Group -> collectives begun in this epoch, as ranks can compare them. From any thread."""
        return positions(self.roster)

    def received(self) -> int:
        """Bytes that have come from other processes so far. From any thread."""
        return received()

    @property
    def unfinished(self) -> bool:
        """Whether some call has begun and not ended, in the background too. From any thread."""
        return waits(self.roster)

    def stats(self) -> CommStats:
        leaked = sum(member.communicator.stats().leaked for member in self.roster)
        return CommStats(self._drains, self._drain_ns_last, self._switches, self._last, leaked)


groups = Groups()
"""The groups of this process."""
