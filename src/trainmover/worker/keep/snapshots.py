# SPDX-License-Identifier: Apache-2.0
"""What this process keeps of its rank's state, in case nobody else has it; see `controller.cuts`.

The copy is made at a boundary on which all ranks have agreed at a gate, and is all that the step
waits for; where only updates write to memory of a device, only the next update does (`late_copy`).
A thread gives it to the buddy's vault. Two are held at most: the newest that is complete
on all ranks, and one on its way to be; a third while it is being written to a checkpoint. They
outlive the run of the script: to go back is to run it again with one of them. Where snapshots are
taken for checkpoints alone, no vault gets any.
"""

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from trainmover.errors import PeerLost, ProtocolError, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Warned, WorkerFact
from trainmover.rank.cuts import Cuts, Put
from trainmover.state.snapshot import Snapshot
from trainmover.state.transfer import Offered, StateServer
from trainmover.state.vault import VaultClient, snapshot_name
from trainmover.worker.keep.late_copy import LateCopy

TRY_AGAIN_S = 0.5
OWN_WAIT_S, ASK_AGAIN_S = 2.0, 0.002


class Snapshots:
    """One per process. The main thread takes, the control thread completes, another one puts.

    What is due, kept and dropped is decided by `rank.cuts`, under a lock.
    """

    def __init__(
        self,
        token: bytes,
        server: StateServer,
        say: Callable[[WorkerFact], None],
        *,
        checkpoint_every: int = 0,
    ):
        self._cuts: Cuts[Snapshot] = Cuts(checkpoint_every)
        self._token = token
        self._server = server
        self._say = say
        self._lock = threading.Lock()
        self._room: bytearray | None = None
        self._needs_room = False
        self._lent: list[Snapshot] = []
        self._puts: queue.SimpleQueue[Put[Snapshot]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._late: LateCopy | None = None

    def keep(self, every: int, *, now: bool) -> None:
        """As the controller wants it: so often, and one at the next gate."""
        with self._lock:
            self._cuts.keep(every, now=now)

    def flag(self, rank: Rank, step: Step) -> int:
        """What to raise at the gate of `step`."""
        with self._lock:
            return self._cuts.flag(rank, step)

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
        later: Collection[int] = (),
    ) -> None:
        """Copy the state as it is now; the rest happens beside the steps.

        begun_ns: since when the step waits for this
        later: numbers of tensors that nobody writes to before `finish` was called
        """
        self.finish()
        with torch.no_grad():
            snapshot = Snapshot.of(rank, step, state.header, state.tensors, self._room, later)
        cost_us = (time.monotonic_ns() - begun_ns) // 1000
        with self._lock:
            self._room, self._needs_room = None, True
            put = self._cuts.took(
                snapshot, epoch=epoch, vault=vault, cost_us=cost_us, step_us=step_us
            )
        if later:
            self._late = LateCopy(
                {number: state.tensors[number] for number in later},
                {number: snapshot.tensors[number] for number in later},
                {number: state.hashes[number] for number in later},
                partial(self._came, put, time.monotonic_ns()),
            )
        else:
            self._put(put)

    def _came(self, put: Put[Snapshot], begun_ns: int, why: str) -> None:
        """The late part of it; "" or why it is none. In a thread."""
        took_us = (time.monotonic_ns() - begun_ns) // 1000
        if not why:
            waited_us = max(0, took_us - put.step_us)
            self._put(replace(put, cost_us=put.cost_us + waited_us))
            return
        with self._lock:
            was_held = self._cuts.spoiled(put.snapshot)
        if was_held:
            rank, step = Rank(put.snapshot.rank), put.snapshot.step
            text = f"the cut of step {step} is given up, another follows: of rank {rank} {why}"
            self._say(Warned(rank=rank, text=text))

    def finish(self) -> None:
        """The state is about to be written to: on return nothing of it is still being copied."""
        late, self._late = self._late, None
        if late is not None:
            late.wait()

    def distrust(self, why: str) -> None:
        """State may be written to unseen from now on."""
        if self._late is not None:
            self._late.distrust(why)

    def agreed(self, flag: int) -> None:
        """All ranks have come through a gate, and this was the highest flag."""
        with self._lock:
            gone = self._cuts.agreed(flag)
        self._withdraw(gone)

    @property
    def is_waited_for(self) -> bool:
        """Whether no step is made before the next one is complete."""
        with self._lock:
            return self._cuts.waits_for_own

    def keep_own(self) -> None:
        """Ranks hold what no other does: vaults are to have their snapshots, and no step is made
        before they have the first one."""
        with self._lock:
            self._cuts.keep_own()

    def await_own(self, step: Step, given_up: Callable[[], bool]) -> None:
        """If that of `step` is the first since ranks hold what is their own: wait until all ranks
        have theirs. Not for long: of large state it comes later, beside the steps."""
        with self._lock:
            if not self._cuts.first_of_own():
                return
        until_s = time.monotonic() + OWN_WAIT_S
        while self._cuts.complete < step and not given_up() and time.monotonic() < until_s:
            time.sleep(ASK_AGAIN_S)

    @contextmanager
    def lent(self, rank: Rank, step: Step) -> Iterator[Snapshot | None]:
        """What is held here; until it is given back its memory is used for no other."""
        with self._lock:
            snapshot = self._cuts.of(rank, step)
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
            return self._cuts.of(rank, step)

    def _has(self, snapshot: Snapshot) -> bool:
        with self._lock:
            return self._cuts.has(snapshot)

    def mend(self, whole: Snapshot) -> None:
        """What is held here of that rank and step is damaged, if there is any: hold this one."""
        with self._lock:
            held = self._cuts.mend(whole)
        if held:
            self._offer(whole)

    @property
    def nbytes(self) -> int:
        """Of those it holds, and of room kept for the next."""
        with self._lock:
            held = sum(snapshot.block.nbytes for snapshot in self._cuts.held.values())
            return held + len(self._room or b"")

    def newest(self, rank: Rank) -> Snapshot | None:
        """Return what is held here of the newest snapshot that all ranks have."""
        with self._lock:
            return self._cuts.of(rank, self._cuts.complete)

    def completed(self, step: Step) -> None:
        """All ranks have theirs of `step`: older ones go."""
        with self._lock:
            old = self._cuts.completed(step)
        self._withdraw(old)
        for snapshot in old:
            with self._lock:
                if self._needs_room and snapshot not in self._lent:
                    self._room = snapshot.room

    def changed(self, every: int) -> None:
        """Members change: what is not complete by now will never be."""
        with self._lock:
            gone = self._cuts.changed(every)
        self._withdraw(gone)

    def back_to(self, step: Step) -> None:
        """The steps after it are undone, and so is what was complete among them: they come again,
        in other snapshots."""
        with self._lock:
            gone = self._cuts.back_to(step)
        self._withdraw(gone)

    def _withdraw(self, gone: list[Snapshot]) -> None:
        for snapshot in gone:
            self._server.withdraw(snapshot_name(snapshot.rank, snapshot.step))

    def follow(self, rank: Rank, vault: str, epoch: Epoch, further: str = "") -> None:
        """The rank has another buddy: it gets the newest complete snapshot; and so does `further`,
        if there is to be one more copy."""
        with self._lock:
            put = self._cuts.follow(rank, vault, epoch, further)
        if put is not None:
            self._put(put)

    def give(self, rank: Rank, step: Step, vault: str, epoch: Epoch) -> None:
        """Nobody else has this one: it goes to that vault, or it is said why not."""
        with self._lock:
            put = self._cuts.give(rank, step, vault, epoch)
        if isinstance(put, Put):
            self._put(put)
        else:
            self._say(put)

    def clear(self) -> None:
        """The job starts anew."""
        with self._lock:
            gone = self._cuts.clear()
        self._withdraw(gone)
        self.spare_room()

    def spare_room(self) -> None:
        """This process holds no rank: no snapshot will follow for which to keep memory."""
        with self._lock:
            self._room, self._needs_room = None, False

    def _put(self, put: Put[Snapshot]) -> None:
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
                self._say(put.said(len(snapshot.block)))
                continue
            while self._has(snapshot):
                refused = self._give_to(put)
                if refused is not None:
                    self._given(put, refused)
                    break
                time.sleep(TRY_AGAIN_S)
                if not self._puts.empty():
                    break

    def _given(self, put: Put[Snapshot], refused: str) -> None:
        with self._lock:
            fact, more = self._cuts.given(put, refused, len(put.snapshot.block))
        if fact is not None:
            self._say(fact)
        if more is not None:
            self._puts.put(more)

    def _offer(self, snapshot: Snapshot) -> bool:
        """Let other processes have it; False if it was dropped meanwhile."""
        name = snapshot_name(snapshot.rank, snapshot.step)
        self._server.offer(name, partial(_whole, snapshot))
        if self._has(snapshot):
            return True
        self._server.withdraw(name)  # Who dropped it may have done so before it was offered.
        return False

    def _give_to(self, put: Put[Snapshot]) -> str | None:
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
        return ""


def _whole(snapshot: Snapshot) -> Offered:
    """The block as one tensor, and its size as the header."""
    size = len(snapshot.block).to_bytes(8, "little")
    return Offered(size, [torch.frombuffer(snapshot.block, dtype=torch.uint8)])
