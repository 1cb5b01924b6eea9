# SPDX-License-Identifier: Apache-2.0
"""What a retry of a step must put back of what is tracked: RNG, buffers, small state, what
optimizers are set to, their parameter groups, what they keep beside tensors; and the batch."""

from dataclasses import dataclass
from typing import Any

import numpy
import torch
import xxhash
from torch import Tensor, nn

from trainmover.asked import are, held_in
from trainmover.state import moments, rng, tensor_bytes
from trainmover.state.kinds.flat import Memory, grouped
from trainmover.state.kinds.modules.registered import registered
from trainmover.state.kinds.parallel.unsharded import Unsharded
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.modules import buffers_of, parameters_in
from trainmover.torch_internals.tensors import version_of
from trainmover.worker.step.retry.arguments import (
    BYTES_MAX,
    Arguments,
    Living,
    nbytes,
)
from trainmover.worker.step.retry.copies import Copies
from trainmover.worker.step.retry.forms import Forms, put_back_forms
from trainmover.worker.step.retry.leaves import Leaves
from trainmover.worker.step.retry.states import States, StatesCopy

_VARIABLE_BYTES_MAX = 1024 * 1024


class Buffers:
    """Of every module: the tensors that stand there, and what they hold. One for all steps: where
    they are is looked for again when there are others."""

    def __init__(self, tracked: Tracked) -> None:
        self._tracked = tracked
        self._owners: list[dict[str, Tensor | None]] = []
        self._held = held_in([])
        self._slots: list[tuple[dict[str, Tensor | None], str]] = []
        self._live: list[Tensor | None] = []
        self._tensors, self._sparse = list[Tensor](), list[Tensor]()
        self._memory = Memory()
        self._forms = Forms()

    def copy(self) -> "BuffersCopy":
        """Of what they hold now."""
        self._find()
        if not self._live:
            return BuffersCopy(self._owners, [], [], [], [], b"", [])
        tensors, sparse = self._tensors, [(one, one.detach().clone()) for one in self._sparse]
        held: bytes | list[Tensor]
        if self._memory.holds(tensors):
            held = self._memory.read()
        else:
            self._memory.note(tensors, range(len(tensors)))
            self._forms.note(tensors)
            held = _joined(tensors)
        forms = self._forms.noted
        return BuffersCopy(self._owners, self._slots, self._live, tensors, forms, held, sparse)

    def _find(self) -> None:
        owners = list(map(buffers_of, self._tracked.modules))
        if are(owners, self._owners) and self._held.same():
            return
        self._owners, self._held = owners, held_in(owners)
        self._slots = [(owner, name) for owner in owners for name, _ in owner.items()]
        self._live = [owner[name] for owner, name in self._slots]
        known = [one for one in self._live if one is not None]
        self._tensors = [one for one in known if one.layout == torch.strided]
        self._sparse = [one for one in known if one.layout != torch.strided]


@dataclass
class BuffersCopy:
    """What they were.

    owners  of all modules, also of those that had none
    tensors of these all but the sparse ones
    forms   where and in which form they lay: see `Forms`
    held    bytes of them, one after the other; or copies by dtype and device
    sparse  the others, each with a copy
    """

    owners: list[dict[str, Tensor | None]]
    slots: list[tuple[dict[str, Tensor | None], str]]
    live: list[Tensor | None]
    tensors: list[Tensor]
    forms: list[Tensor | None]
    held: bytes | list[Tensor]
    sparse: list[tuple[Tensor, Tensor]]

    def put_back(self) -> None:
        """The same tensors in their places, with the same content; what was not there goes."""
        tensors = self.tensors
        with torch.no_grad():
            put_back_forms(tensors, self.forms)
            for tensor, copy in self.sparse:
                tensor.copy_(copy)
            if isinstance(self.held, bytes):
                _fill(tensors, self.held)
            else:
                for group, copy in zip(_groups(tensors), self.held, strict=True):
                    parts = torch.split(copy, [tensor.numel() for tensor in group])
                    for tensor, part in zip(group, parts, strict=True):
                        tensor.copy_(part.view(tensor.shape))
        for owner in self.owners:
            if isinstance(owner, dict):  # TorchScript's cannot get others.
                owner.clear()
        for (owner, name), live in zip(self.slots, self.live, strict=True):
            owner[name] = live


def _groups(tensors: list[Tensor]) -> list[list[Tensor]]:
    """By dtype and device."""
    return [[tensors[index] for index in group] for group in grouped(tensors)]


def _joined(tensors: list[Tensor]) -> list[Tensor]:
    """Where they are: on an accelerator nobody waits for it."""
    return [
        torch.cat([tensor.detach().reshape(-1) for tensor in group]) for group in _groups(tensors)
    ]


def _fill(tensors: list[Tensor], data: bytes) -> None:
    view, offset = memoryview(data), 0
    for tensor in tensors:
        part = view[offset : offset + tensor.nbytes]
        tensor.copy_(tensor_bytes.from_bytes(part, tensor.dtype, tuple(tensor.shape)))
        offset += tensor.nbytes


class LargeMemory:
    """Memory that is too large to be copied, as it was when a step began: it must not change."""

    def __init__(self) -> None:
        self._noted: list[tuple[Any, int]] = []

    def note(self, value: Any) -> None:
        """Remember what it holds. Objects in an array are none of it."""
        if not (isinstance(value, numpy.ndarray) and value.dtype.hasobject):
            self._noted.append((value, _hash(value)))

    def changed(self) -> bool:
        """Tell whether any of it holds something else now."""
        return any(_hash(value) != before for value, before in self._noted)


def _hash(value: Any) -> int:
    flat: Any = numpy.ascontiguousarray(value) if isinstance(value, numpy.ndarray) else value
    found: int = xxhash.xxh3_64_intdigest(memoryview(flat).cast("B"))
    return found


@dataclass
class Before:
    """Taken as a step starts. Copies are small: of bulk state there are some only where steps were
    seen to change it (`changes`), and `state.gradients` has its own. What the script itself holds
    is put back by its graph (`keep/script_graph.py`).

    arguments  what the step is called with, also on a device
    kept       gradients of these that may change in place
    leaves     tensors of them, as autograd knows them
    uncopied   tensors that are too large to be copied, and their versions: they must not change
    large      other memory that must not
    settings   parameter groups of optimizers: a schedule may go on before the update, a group may
               be added, a parameter frozen
    states     of optimizers, but for what tensors hold: a level of gradients as a number
    buffers    of every module, for instance the running mean of a batch-norm: a step may write
               into them or put other tensors in their place
    unsharded  gradients that FSDP2 keeps to itself
    layers     how many modules had been given by then, and which are tracked: a layer that is made
               when it is first needed is made once
    """

    rng_state: bytes
    small: dict[str, bytes]
    settings: Copies
    states: StatesCopy
    buffers: BuffersCopy
    unsharded: list[tuple[Unsharded, dict[str, Any], dict[str, Tensor]]]
    arguments: Arguments
    uncopied: list[tuple[Tensor, int]]
    kept: Copies
    leaves: Leaves
    large: LargeMemory
    layers: tuple[int, list[nn.Module]]

    @staticmethod
    def take(
        tracked: Tracked,
        args: Any,
        kwargs: Any,
        buffers: Buffers | None = None,
        living: Living | None = None,
        states: States | None = None,
    ) -> "Before":
        """Cost: one RNG capture, the small states, a copy of buffers and batch."""
        uncopied: list[tuple[Tensor, int]] = []
        kept = Copies()
        leaves = _leaves(tracked, kept, uncopied)
        large = LargeMemory()
        arguments = Arguments(living or Living(), leaves, large.note)
        arguments.keep(args, kwargs)
        return Before(
            rng.capture(),
            tracked.small_states(moments.Moment.RETRY),
            _settings(tracked),
            (states or States()).copy(tracked),
            (buffers or Buffers(tracked)).copy(),
            [(part, part.state_dict(), _clones(part)) for part in tracked.unsharded],
            arguments,
            uncopied + arguments.uncopied,
            kept,
            leaves,
            large,
            (registered.layers, tracked.modules),
        )

    def why_not(self) -> str:
        """Why the step cannot be run again; "" if it can: something was changed that could not be
        copied."""
        for tensor, version in self.uncopied:
            if version_of(tensor) != version:
                shape = "x".join(map(str, tensor.shape))
                return (
                    f"it has changed a tensor of shape {shape} in place; arguments that need "
                    f"a gradient, or are larger than {BYTES_MAX >> 20} MiB, are not copied"
                )
        if why := self.leaves.why_not() or self.states.why_not():
            return why
        if registered.given_since(*self.layers):
            return "it has given the model a layer, and those it begins with are drawn once"
        if self.large.changed():
            return f"it has changed memory of more than {BYTES_MAX >> 20} MiB in place"
        return ""

    def restore(self, tracked: Tracked) -> None:
        """Put everything back. See `why_not`."""
        rng.restore(self.rng_state)
        self.settings.put_back()
        self.states.put_back()
        self.leaves.put_back()
        self.kept.put_back()
        self.arguments.put_back()
        tracked.load_small(self.small)
        self.buffers.put_back()
        for part, state, values in self.unsharded:
            part.load_state_dict(state)
            part.set_values({name: value.clone() for name, value in values.items()})


def _leaves(tracked: Tracked, kept: Copies, uncopied: list[tuple[Tensor, int]]) -> Leaves:
    """Gradients of what is tracked are put back by themselves."""
    known = set[int]()

    def is_tracked(tensor: Tensor) -> bool:
        if not known:
            known.update(
                id(one) for part in tracked.modules for one in parameters_in(part).values()
            )
        return id(tensor) in known

    def keep(gradient: Tensor) -> None:
        if nbytes(gradient) <= _VARIABLE_BYTES_MAX:
            kept.add(gradient)
        else:
            uncopied.append((gradient, version_of(gradient)))

    return Leaves(keep, is_tracked)


def _settings(tracked: Tracked) -> Copies:
    settings = Copies()
    for optimizer in tracked.optimizers:
        settings.add_container(optimizer.param_groups)
        for group in optimizer.param_groups:
            settings.add_container(group)
            settings.add_container(group["params"])
            settings.add(*[value for key, value in group.items() if key != "params"])
    return settings


def _clones(part: Unsharded) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in part.values().items()}
