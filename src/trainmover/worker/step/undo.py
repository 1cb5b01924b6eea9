"""Steps whose update cannot be taken for local: they are undone, and commit at their return.

Mostly the gate of a step is just before its first update: what comes behind it is local, so a lost
machine cannot leave it half done. That does not hold where collectives are made behind the gate
and still go into the state:

    ZeroRedundancyOptimizer, Muon-like    inside optimizer.step()
    LBFGS                                 in the closure, which optimizer.step() calls
    a GAN in one function                 between the steps of two optimizers

Nor does it hold if a step, behind its gate, changes small state that each rank has for itself.
Such a job goes over to *undo*: whatever an update may touch is copied just before, the gate is at
the function's return, and an aborted step puts the copy back.

How it is found out: from the gate on a rank listens for collectives until its function returns. The
first time that one is heard before an update begins or ends, the rank asks for the change at the
next gate, and all ranks make it behind that (see `Gate`). A rank that is lost in the very step
where it is found out takes the job with it; in the job's first steps that is so anyway.
"""

import time
from collections.abc import Mapping

import torch
import xxhash
from torch import Tensor, nn

from trainmover.comm.tap import Call
from trainmover.state import encode
from trainmover.state.placing import HasState, load_bulk
from trainmover.state.tracked import Tracked
from trainmover.worker.step.copies import Copies


class Listener:
    """A tap that only hears whether there was a call. heard: to be set to False at the gate."""

    def __init__(self) -> None:
        self.heard = False

    def serve(self, call: Call) -> bool:
        """The call runs for real."""
        self.heard = True
        return False

    def done(self, call: Call) -> None:
        """Nothing is kept."""


class BehindGate:
    """Small state that steps change behind their gate: a record from there does not have it.

    Where ranks hold the same, a joiner takes it from another rank. Where they do not, as in the
    buffers of an average of weights that is updated in the step, the gate must come later.
    """

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_64()

    def note(self, at_gate: Mapping[str, bytes], now: Mapping[str, bytes]) -> None:
        """A step has returned."""
        for name, state in now.items():
            if at_gate.get(name, state) != state:
                self._hash.update(encode.encode([name, at_gate[name]]))

    def digest(self) -> int:
        """Equal on all ranks if what they have changed was the same on all of them."""
        return self._hash.intdigest() >> 1


class Undo:
    """What the updates of the step under way change, as it was before them.

    Optimizers are added as each is about to step, also those inside of others: ZeRO's shard of the
    state lies in one. State made by an update is gone again after `put_back`. Buffers of modules
    are not here: `Before` has them.
    """

    def __init__(self) -> None:
        self._copies = Copies()
        self._others: list[tuple[HasState, bytes, list[Tensor]]] = []
        self._stepped: list[torch.optim.Optimizer] = []
        self._ns = 0

    @property
    def cost(self) -> str:
        """Of the copy of this step, for people; "" if none was made."""
        if not self._stepped:
            return ""
        return f"{self._copies.nbytes / 1e6:.1f} MB copied in {self._ns / 1e6:.1f} ms"

    @property
    def nbytes(self) -> int:
        """Of all copies that are kept, also those of a step that is over."""
        others = (tensor.nbytes for _, _, tensors in self._others for tensor in tensors)
        return self._copies.nbytes + sum(others)

    def begin(self) -> None:
        """A step starts, or starts again: nothing is changed yet."""
        if self._stepped:
            self._copies.begin()
            self._others, self._stepped, self._ns = [], [], 0

    def before_update(self, tracked: Tracked, optimizer: torch.optim.Optimizer) -> None:
        """Called before every `optimizer.step()`; copies what has not been copied in this step."""
        if any(optimizer is known for known in self._stepped):
            return
        started = time.perf_counter_ns()
        if not self._stepped:
            self._add_tracked(tracked)
        self._stepped.append(optimizer)
        self._copies.add(optimizer.state, optimizer.param_groups)
        self._ns += time.perf_counter_ns() - started

    def put_back(self) -> None:
        """Undo the updates of this step, if it made any."""
        if not self._stepped:
            return
        self._copies.put_back()
        for obj, structure, tensors in self._others:
            load_bulk(obj, structure, [tensor.clone() for tensor in tensors])

    def _add_tracked(self, tracked: Tracked) -> None:
        """Beside the optimizer that steps: averages of weights, whatever a script keeps."""
        bulk = set(tracked.bulk_names())
        for name, obj in tracked.items():
            if isinstance(obj, nn.Module):
                self._copies.add(*obj.parameters())
            elif name in bulk and not isinstance(obj, torch.optim.Optimizer):
                structure, tensors = encode.split(obj.state_dict())
                copies = [encode.as_local(tensor).clone() for tensor in tensors]
                self._others.append((obj, structure, copies))
