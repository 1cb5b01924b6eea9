# SPDX-License-Identifier: Apache-2.0
"""The first steps of a rank: recorded while it makes them, and kept so that a standby can repeat
them alone.

The recorder hears every collective until enough was shown, and then on to the next fetch, where a
shadow run stands: losses are averaged, models evaluated, ranks wait for each other between a step
and the next batch. Which rank fetches when is the script's affair, so a rank only ends its own
record there and goes on. Behind each step that follows the ranks ask each other whether all have
come so far. Then the hook goes, they compare what they have, so that of equal records one is
stored, and each has its buddy keep its part.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from trainmover.comm import Drained, groups
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Recorded, Warned, WorkerFact
from trainmover.sandbox import layout
from trainmover.sandbox.record import STEPS, Record, blob_name
from trainmover.sandbox.recorder import Recorder
from trainmover.sandbox.sharing import Share, Stores, share_of
from trainmover.sandbox.step_trace import StepTrace
from trainmover.state.tracked import Tracked
from trainmover.torch_internals import compiling
from trainmover.worker.keep import compiled
from trainmover.worker.keep.script_graph import NO_COVERAGE, Coverage
from trainmover.worker.step.gate import Gate
from trainmover.worker.step.keeper import Keeper

STEPS_MAX = 64
"""So many are recorded at most, however seldom a script fetches or updates."""

LEARNING_MAX = 32
"""So many at most until every static graph is learned: who joins has to make its backward."""


@dataclass(frozen=True)
class FirstSteps:
    """What is kept of them for standbys and resumed jobs; None: another rank's serves it.

    compiled  what was compiled in them, and in steps since; None: nothing was
    made      hash of what that is; "": nothing
    """

    record: bytes | bytearray | None = None
    compiled: bytes | None = None
    made: str = ""

    @property
    def nbytes(self) -> int:
        """Of both."""
        return len(self.record or b"") + len(self.compiled or b"")


class Recording:
    """Of one rank's first steps, as far as this process has made or replayed them.

    recorder  hears the collectives; None: the steps are over, or another process has made them
    later     hears the collectives of a later step that is compared with them; None: of no other
    kept      as the buddy keeps it
    trace     of the collectives of their last, without those between it and the fetch
    graphs    how many this process had compiled when `kept` was made
    """

    def __init__(
        self,
        rank: Rank,
        nproc: int,
        *,
        tracked: Tracked,
        gate: Gate,
        keeper: Keeper,
        say: Callable[[WorkerFact], None],
    ) -> None:
        self.recorder: Recorder | None = None
        self.later: StepTrace | None = None
        self.kept = FirstSteps()
        self.trace = self.first_trace = ""
        self.graphs = 0
        self._rank = rank
        self._nproc = nproc
        self._tracked = tracked
        self._gate = gate
        self._keeper = keeper
        self._say = say
        self._update_steps = 0
        self._epoch = 0  # In which its steps began.

    @property
    def is_open(self) -> bool:
        """Whether the newest step is in it, or will be."""
        return self.recorder is not None and not self.recorder.closed

    def fetched(self, steps: Step) -> None:
        """The script fetches, after so many steps: the record ends here if they show enough."""
        recorder = self.recorder
        if recorder is None:
            return
        recorder.fetches()
        if self.is_open and self._has_shown_all(steps):
            recorder.close(steps, self._tracked.signature())

    def drew(self) -> None:
        """It has its batch."""
        if self.recorder is not None:
            self.recorder.drew()

    def begin_step(self) -> None:
        """A step starts, or starts again."""
        if self.recorder is not None:
            self.recorder.begin_step()

    def end_step(self, step: Step, *, updated: bool) -> bool:
        """A step is committed and has returned. True: all ranks have shown enough, to be finished
        now."""
        if self.recorder is None:
            return False
        self.recorder.end_step()
        self._update_steps += updated
        self._epoch = self._epoch or groups.epoch
        if step >= STEPS_MAX and not self.recorder.closed:
            self._warn_of_rare_fetches(step)
            self.recorder.close(step, self._tracked.signature())
        return step > STEPS and self._all_are_ready(step)

    def _has_shown_all(self, steps: Step) -> bool:
        """Whether the steps so far are enough: whole updates, three of them as well, since DDP
        rebuilds its buckets in the second that is synchronised; and what a static graph needs."""
        if steps < LEARNING_MAX and any(modes.learning() for modes in self._tracked.modes):
            return False
        accumulates = any(gradients.accumulate for gradients in self._tracked.gradients)
        return steps >= STEPS and (self._update_steps >= STEPS or not accumulates)

    def _all_are_ready(self, step: Step) -> bool:
        """Every rank that records asks this behind the same steps, as long as nobody was lost: who
        joins has nothing to record, so from then on each finishes by itself."""
        assert self.recorder is not None
        ready = self.recorder.closed and (not self.recorder.waits or step >= STEPS_MAX)
        if self._alone:
            return ready
        try:
            return bool(self._gate.gather(torch.tensor(int(ready))).all())
        except Drained:
            return ready

    @property
    def _alone(self) -> bool:
        return groups.epoch != self._epoch

    def finish(
        self,
        step: Step,
        *,
        updates: int,
        functions: list[str],
        loaders: int,
        length: int,
        coverage: Coverage = NO_COVERAGE,
    ) -> None:
        """Steps enough: the hook goes, the record goes to the buddy, standbys may warm up.

        updates: calls of `optimizer.step()` so far. the rest as in `Recorded`
        Raises PeerLost, with everything ready to be `put` with the next buddy.
        """
        recorder, self.recorder, groups.tap = self.recorder, None, None
        assert recorder is not None
        if not updates:
            self._warn_of_no_update(step)
        if recorder.early and self._rank == 0:
            self._warn_of_early_calls(recorder.early)
        if recorder.waits:
            self._warn_of_open_calls()
        record = recorder.finish()
        self.first_trace = record.trace
        share = self._share(record)
        self.keep(_stored(record, share), recorder.step_trace())
        self.put()
        self._say(self._told(step, record, share, functions, loaders, length, coverage))

    def keep(self, record: bytes | bytearray | None, trace: str) -> None:
        """From now on, and what was compiled so far beside it."""
        self.kept, self.trace = FirstSteps(record), trace
        if record is not None:
            self._pack()

    def pack_again(self) -> None:
        """More was compiled since: the buddy gets that too. Raises PeerLost."""
        self._pack()
        self._put_compiled()

    def _pack(self) -> None:
        self.graphs = compiling.graphs()
        packed = compiled.packed()
        if packed is not None:
            self.kept = replace(self.kept, compiled=packed.data, made=packed.made)

    def put(self) -> None:
        """Have the buddy keep what standbys need. Raises PeerLost."""
        if self.kept.record is not None:
            self._keeper.put_blob(blob_name(self._rank), self.kept.record)
            self._put_compiled()

    def _put_compiled(self) -> None:
        if self.kept.compiled is not None:
            self._keeper.put_blob(compiled.blob_name(self._rank), self.kept.compiled)

    def forget(self) -> None:
        """Nothing is kept here any more."""
        self.kept = FirstSteps()

    def _told(
        self,
        step: Step,
        record: Record,
        share: Share,
        functions: list[str],
        loaders: int,
        length: int,
        coverage: Coverage,
    ) -> Recorded:
        return Recorded(
            rank=self._rank,
            step=step,
            trace=record.trace,
            digest=self._tracked.replica_digest().whole,
            signature=record.signature,
            record_of=Rank(share.base) if share.stores is Stores.NOTHING else None,
            base=Rank(share.base) if share.stores is Stores.SMALL else None,
            bytes=0 if self.kept.record is None else len(self.kept.record),
            bytes_full=layout.bytes_full(record),
            held_bytes=record.held_bytes,
            tracked=list(self._tracked),
            functions=functions,
            loaders=loaders,
            length=length,
            objects=coverage.objects,
            opaque=coverage.opaque,
        )

    def _share(self, record: Record) -> Share:
        """All ranks have committed the same step, so all ask here, and get the same answer.

        If they are interrupted some may have none: a rank that does not know stores all it has.
        """
        if self._alone:
            return Share(Stores.WHOLE, self._rank)
        kind, own = record.kind(), record.own()
        mine = torch.frombuffer(bytearray(kind + own), dtype=torch.int64)
        try:
            rows = self._gate.gather(mine)
        except Drained:
            return Share(Stores.WHOLE, self._rank)
        hashes = [row.numpy().tobytes() for row in rows]
        half = len(kind)
        kinds, owns = [each[:half] for each in hashes], [each[half:] for each in hashes]
        return share_of(self._rank, kinds, owns, self._nproc)

    def _warn_of_early_calls(self, place: str) -> None:
        self._say(
            Warned(
                rank=self._rank,
                text=f"collectives are made between a fetch and its step ({place}): if a machine "
                "is lost in that step, all ranks go back to a snapshot, since who takes a rank "
                "makes them again and the others do not; cheaper: make them inside the step",
            )
        )

    def _warn_of_open_calls(self) -> None:
        self._say(
            Warned(
                rank=self._rank,
                text=f"rank {self._rank} never waited for a collective it made in its first steps: "
                "they cannot be repeated, so no standby can be warmed; wait for the handles of "
                "asynchronous collectives",
            )
        )

    def _warn_of_rare_fetches(self, step: Step) -> None:
        self._say(
            Warned(
                rank=self._rank,
                text=f"rank {self._rank} has made {step} steps without coming to a fetch behind "
                "whole updates: standbys stand, and take over, at a fetch, so none can be warmed; "
                "draw from job.batches() for each step",
            )
        )

    def _warn_of_no_update(self, step: Step) -> None:
        optimizers = [n for n, o in self._tracked.items() if isinstance(o, torch.optim.Optimizer)]
        if optimizers and self._rank == 0:
            self._say(
                Warned(
                    rank=self._rank,
                    text=f"{step} steps were made without an optimizer.step() inside: if one is "
                    "made outside the function marked @job.step, it is not protected",
                )
            )


def _stored(record: Record, share: Share) -> bytes | None:
    """What a rank puts into the vault as its part."""
    match share.stores:
        case Stores.WHOLE:
            return layout.to_bytes(record)
        case Stores.SMALL:
            return layout.to_bytes(record.without_large(share.base))
        case Stores.NOTHING:
            return None
