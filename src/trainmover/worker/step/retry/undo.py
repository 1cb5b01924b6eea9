# SPDX-License-Identifier: Apache-2.0
"""Steps whose update cannot be taken for local: they are undone, and commit at their return.

Mostly the gate of a step is just before its first update: what comes behind it is local, so a lost
machine cannot leave it half done. That does not hold where collectives are made behind the gate
and still go into the state:

    ZeroRedundancyOptimizer, Muon-like    inside optimizer.step()
    LBFGS                                 in the closure, which optimizer.step() calls
    a GAN in one function                 between the steps of two optimizers

Nor does it hold if a step, behind its gate, changes small state that each rank has for itself, or
draws random numbers: a second forward with dropout, an update that rounds by chance.
Such a job goes over to *undo*: whatever an update may touch is copied just before, the gate is at
the function's return, and an aborted step puts the copy back.

How it is found out: calls of the script's groups are counted, at the gate and until the function
returns. The first time that one is made behind the gate, the rank asks for the change at the next
gate, and all ranks make it behind that (see `Gate`). A call that is cut short in the very step
where that is found out has committed what it is part of: all ranks go back then, or the job ends.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn

from trainmover.state import encode
from trainmover.state.items import HasState
from trainmover.state.placing import load_bulk
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.optimizers import is_zero
from trainmover.worker.step.retry.copies import Copies

_PLAIN = frozenset({bool, int, float, str, type(None)})


def further_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Plain values that a class of optimizers adds to its state: steps that it counts itself."""
    if type(optimizer).state_dict is torch.optim.Optimizer.state_dict or is_zero(optimizer):
        return {}
    state = optimizer.state_dict()
    return {name: value for name, value in state.items() if type(value) in _PLAIN}


class Undo:
    """What the updates of the step under way change, as it was before them.

    Optimizers are added as each is about to step, also those inside of others: ZeRO's shard of the
    state lies in one. State made by an update is gone again after `put_back`. Buffers of modules
    are not here: `Before` has them.
    """

    def __init__(self) -> None:
        self._copies = Copies()
        self._others: list[tuple[HasState, bytes, list[Tensor]]] = []
        self._further: list[tuple[torch.optim.Optimizer, dict[str, Any]]] = []
        self._stepped: list[torch.optim.Optimizer] = []
        self._copied = self._copied_some = False
        self._ns = 0

    @property
    def cost(self) -> str:
        """Of the copy of this step, for people; "" if none was made."""
        if not self._copied:
            return ""
        return f"{self._copies.nbytes / 1e6:.1f} MB copied in {self._ns / 1e6:.1f} ms"

    @property
    def nbytes(self) -> int:
        """Of all copies that are kept, also those of a step that is over."""
        others = (tensor.nbytes for _, _, tensors in self._others for tensor in tensors)
        return self._copies.nbytes + sum(others)

    def begin(self) -> None:
        """A step starts, or starts again: nothing is changed yet."""
        if self._copied or self._copied_some:
            self._copies.begin()
            self._others, self._further, self._stepped, self._ns = [], [], [], 0
            self._copied = self._copied_some = False

    def copy(self, tensors: list[Tensor]) -> None:
        """These, now, unless they were copied in this step."""
        self._copied_some = True
        self._copies.add(*tensors)

    def copy_all(self, tracked: Tracked) -> None:
        """All that is tracked, before a step that may change it at any time."""
        started = time.perf_counter_ns()
        self._add_tracked(tracked)
        for optimizer in tracked.optimizers:
            self._add_optimizer(optimizer)
        self._ns += time.perf_counter_ns() - started

    def before_update(self, tracked: Tracked, optimizer: torch.optim.Optimizer) -> None:
        """Called before every `optimizer.step()`; copies what has not been copied in this step."""
        if any(optimizer is known for known in self._stepped):
            return
        started = time.perf_counter_ns()
        if not self._copied:
            self._add_tracked(tracked)
        self._add_optimizer(optimizer)
        self._ns += time.perf_counter_ns() - started

    def _add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepped.append(optimizer)
        self._copies.add(optimizer.state, optimizer.param_groups)

    def put_back(self) -> None:
        """Undo the updates of this step, if it made any."""
        if not self._copied and not self._copied_some:
            return
        self._copies.put_back()
        for obj, structure, tensors in self._others:
            load_bulk(obj, structure, [tensor.clone() for tensor in tensors])
        for optimizer, before in self._further:
            if further_of(optimizer) != before:
                optimizer.load_state_dict(optimizer.state_dict() | before)

    def _add_tracked(self, tracked: Tracked) -> None:
        """Beside the optimizer that steps: averages of weights, whatever a script keeps."""
        self._copied = True
        bulk = set(tracked.bulk_names())
        for name, obj in tracked.items():
            if isinstance(obj, nn.Module):
                self._copies.add(*obj.parameters())
            elif isinstance(obj, torch.optim.Optimizer):
                if further := further_of(obj):
                    self._further.append((obj, further))
            elif name in bulk:
                structure, tensors = encode.split(obj.state_dict())
                copies = [encode.as_local(tensor).clone() for tensor in tensors]
                self._others.append((obj, structure, copies))
