"""What this process keeps of its rank's state, in case nobody else has it; see `controller.cuts`.

The copy is made at a boundary on which all ranks have agreed at a gate, and is all that the step
waits for. A thread gives it to the buddy's vault. Two are held at most: the newest that is complete
on all ranks, and one on its way to be; a third while it is being written to a checkpoint. They
outlive the run of the script: to go back is to run it again with one of them. Where snapshots are
taken for checkpoints alone, no vault gets any.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from trainmover.errors import PeerLost, ProtocolError, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Snapped, WorkerFact
from trainmover.state.snapshot import Snapshot
from trainmover.state.transfer import Offered, StateServer
from trainmover.state.vault import VaultClient, snapshot_name

WANTED, BUSY = 1, 2
"""What a rank raises at its gate: of all ranks' flags the highest counts."""
TRY_AGAIN_S = 0.5
OWN_WAIT_S, ASK_AGAIN_S = 2.0, 0.002


@dataclass
class _Put:
    """A snapshot to be given to a vault; "": to none. further: to that one, `vault` has it."""

    snapshot: Snapshot
    epoch: Epoch
    vault: str
    cost_us: int
    step_us: int
    further: str = ""


class Snapshots:
    """One per process. The main thread takes, the control thread completes, another one puts.

    every             committed steps from one to the next; 0: none is wanted. A process that
                      holds none, as the first time and after its rank was taken, wants one now
    further           vault that is to have one more copy of each; "": none is
    asked             one is wanted at the next gate; set by the control thread
    checkpoint_every  one is wanted at each multiple of it; 0: at none
    """

    def __init__(
        self,
        token: bytes,
        server: StateServer,
        say: Callable[[WorkerFact], None],
        *,
        checkpoint_every: int = 0,
    ):
        self.every = 0
        self.further = ""
        self.asked = False
        self._checkpoint_every = checkpoint_every
        self._asked_since: Step | None = None
        self._token = token
        self._server = server
        self._say = say
        self._lock = threading.Lock()
        self._complete = Step(0)
        self._held: dict[Step, Snapshot] = {}
        self._vaults: dict[Step, tuple[str, str]] = {}
        self._room: bytearray | None = None
        self._needs_room = False
        self._lent: list[Snapshot] = []
        self._own_is_kept = self._waits_for_own = False
        self._puts: queue.SimpleQueue[_Put] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def flag(self, rank: Rank, step: Step) -> int:
        """What to raise at the gate of `step`."""
        if not self.every and not self._checkpoint_every and not self.asked:
            return 0
        if self._asked_since is None:
            self._asked_since = step
        with self._lock:
            if any(held > self._complete for held in self._held):
                return BUSY
            held = [at for at, snapshot in self._held.items() if snapshot.rank == rank]
        last = max(held, default=Step(0))
        due = self.every and (not held or step - last >= self.every)
        return WANTED if due or self.asked or self._is_past_multiple(step, last) else 0

    def _is_past_multiple(self, step: Step, last: int) -> bool:
        """Whether a checkpoint is to be made of this step. One that could not be taken at its
        multiple is taken as soon as it can."""
        assert self._asked_since is not None
        every, last = self._checkpoint_every, max(last, self._asked_since - 1)
        return bool(every) and step // every > last // every

    def take(
        self,
        rank: Rank,
        step: Step,
        state: Offered,
        *,
        epoch: Epoch,
        vault: str,
        begun_ns: int,
        step_us: int,
    ) -> None:
        """Copy the state as it is now; the rest happens beside the steps.

        begun_ns: since when the step waits for this
        """
        self.asked = False
        with torch.no_grad():
            snapshot = Snapshot.of(rank, step, state.header, state.tensors, self._room)
        with self._lock:
            self._room, self._needs_room = None, True
            self._held[step] = snapshot
        cost_us = (time.monotonic_ns() - begun_ns) // 1000
        self._put(_Put(snapshot, epoch, "" if self._only_written else vault, cost_us, step_us))

    @property
    def _only_written(self) -> bool:
        """Whether they are taken for checkpoints alone."""
        return not self.every and not self._own_is_kept and self._checkpoint_every > 0

    def keep_own(self) -> None:
        """Ranks hold what no other does: vaults are to have their snapshots, and no step is made
        before they have the first one."""
        self._own_is_kept = self._waits_for_own = True

    def await_own(self, step: Step, given_up: Callable[[], bool]) -> None:
        """If that of `step` is the first since ranks hold what is their own: wait until all ranks
        have theirs. Not for long: of large state it comes later, beside the steps."""
        waits, self._waits_for_own = self._waits_for_own, False
        until_s = time.monotonic() + OWN_WAIT_S
        while waits and self._complete < step and not given_up() and time.monotonic() < until_s:
            time.sleep(ASK_AGAIN_S)

    @contextmanager
    def lent(self, rank: Rank, step: Step) -> Iterator[Snapshot | None]:
        """What is held here; until it is given back its memory is used for no other."""
        with self._lock:
            snapshot = self._of(rank, step)
            if snapshot is not None:
                self._lent.append(snapshot)
        try:
            yield snapshot
        finally:
            if snapshot is not None:
                with self._lock:
                    self._lent.remove(snapshot)

    def of(self, rank: Rank, step: Step) -> Snapshot | None:
        """What is held here."""
        with self._lock:
            return self._of(rank, step)

    def _of(self, rank: Rank, step: Step) -> Snapshot | None:
        """Called under the lock."""
        held = self._held.get(step)
        return held if held is not None and held.rank == rank else None

    def mend(self, whole: Snapshot) -> None:
        """What is held here of that rank and step is damaged, if there is any: hold this one."""
        with self._lock:
            if self._of(Rank(whole.rank), Step(whole.step)) is None:
                return
            self._held[Step(whole.step)] = whole
        self._offer(whole)

    @property
    def nbytes(self) -> int:
        """Of those it holds, and of room kept for the next."""
        with self._lock:
            held = sum(snapshot.block.nbytes for snapshot in self._held.values())
            return held + len(self._room or b"")

    def completed(self, step: Step) -> None:
        """All ranks have theirs of `step`: older ones go."""
        with self._lock:
            self._complete = step
            old = [self._held.pop(at) for at in list(self._held) if at < step]
        for snapshot in old:
            self._server.withdraw(snapshot_name(snapshot.rank, snapshot.step))
            with self._lock:
                if self._needs_room and snapshot not in self._lent:
                    self._room = snapshot.room

    def changed(self, every: int) -> None:
        """Members change: what is not complete by now will never be."""
        self.every = every
        self._drop_incomplete()

    def back_to(self, step: Step) -> None:
        """The steps after it are undone, and so is what was complete among them: they come again,
        in other snapshots."""
        with self._lock:
            self._complete = min(self._complete, step)
        self._asked_since = None
        self._drop_incomplete()

    def _drop_incomplete(self) -> None:
        with self._lock:
            lost = [self._held.pop(at) for at in list(self._held) if at > self._complete]
        for snapshot in lost:
            self._server.withdraw(snapshot_name(snapshot.rank, snapshot.step))

    def follow(self, rank: Rank, vault: str, epoch: Epoch, further: str = "") -> None:
        """The rank has another buddy: it gets the newest complete snapshot; and so does `further`,
        if there is to be one more copy."""
        self.further = further
        snapshot = self.of(rank, self._complete)
        known = self._only_written or self._vaults.get(self._complete) == (vault, further)
        if snapshot is not None and not known:
            self._put(_Put(snapshot, epoch, vault, 0, 0))

    def clear(self) -> None:
        """The job starts anew."""
        self.completed(Step(0))
        self.changed(0)
        self._vaults, self._asked_since = {}, None
        self._own_is_kept = self._waits_for_own = False
        self.spare_room()

    def spare_room(self) -> None:
        """This process holds no rank: no snapshot will follow for which to keep memory."""
        with self._lock:
            self._room, self._needs_room = None, False

    def _put(self, put: _Put) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._give, name="tm-snapshots", daemon=True)
            self._thread.start()
        self._puts.put(put)

    def _give(self) -> None:
        """One after the other, for as long as the process lives."""
        while True:
            put = self._puts.get()
            snapshot = put.snapshot
            if put.cost_us and not put.further:
                snapshot.seal()
                if not self._offer(snapshot):
                    continue
            if not put.vault:
                self._said(put, "")
                continue
            while self.of(Rank(snapshot.rank), Step(snapshot.step)) is snapshot:
                refused = self._give_to(put)
                if refused is not None:
                    self._given(put, refused)
                    break
                time.sleep(TRY_AGAIN_S)
                if not self._puts.empty():
                    break

    def _given(self, put: _Put, refused: str) -> None:
        """The vault has it, or has refused it. Of one more copy that is no news: there is one."""
        if put.further and refused:
            return
        self._said(put, refused)
        if self.further and not put.further and not refused:
            self._puts.put(replace(put, further=self.further))

    def _offer(self, snapshot: Snapshot) -> bool:
        """Let other processes have it; False if it was dropped meanwhile."""
        name = snapshot_name(snapshot.rank, snapshot.step)
        self._server.offer(name, partial(_whole, snapshot))
        if self.of(Rank(snapshot.rank), Step(snapshot.step)) is snapshot:
            return True
        self._server.withdraw(name)  # Who dropped it may have done so before it was offered.
        return False

    def _give_to(self, put: _Put) -> str | None:
        """Why the vault refused it; "" if it has it; None if it cannot be reached."""
        snapshot = put.snapshot
        try:
            client = VaultClient(put.further or put.vault, self._token)
            try:
                client.put_blob(snapshot_name(snapshot.rank, snapshot.step), snapshot.block)
            finally:
                client.close()
        except (PeerLost, ProtocolError):
            return None  # Members will change, or it comes back.
        except UserError as error:
            return error.happened
        self._vaults = {Step(snapshot.step): (put.vault, put.further)}
        return ""

    def _said(self, put: _Put, refused: str) -> None:
        self._say(
            Snapped(
                rank=Rank(put.snapshot.rank),
                epoch=put.epoch,
                step=Step(put.snapshot.step),
                vault=put.vault,
                bytes=len(put.snapshot.block),
                cost_us=put.cost_us,
                step_us=put.step_us,
                refused=refused,
                further=put.further,
            )
        )


def _whole(snapshot: Snapshot) -> Offered:
    """The block as one tensor, and its size as the header."""
    size = len(snapshot.block).to_bytes(8, "little")
    return Offered(size, [torch.frombuffer(snapshot.block, dtype=torch.uint8)])
