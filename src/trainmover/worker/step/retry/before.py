# SPDX-License-Identifier: Apache-2.0
"""What a retry of a step must put back: RNG, buffers, small tracked state, the batch; what
optimizers are set to, their parameter groups, and what they keep beside tensors; and variables of
the script that code in the step can store to: globals, closure cells, attributes, and what
containers hold."""

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from types import CellType
from typing import Any

import torch
from torch import Tensor, nn

from trainmover.asked import are, held_in
from trainmover.state import moments, rng, tensor_bytes
from trainmover.state.kinds.flat import Memory, grouped
from trainmover.state.kinds.generators import Generator, set_state, state_of
from trainmover.state.kinds.modules.registered import registered
from trainmover.state.kinds.parallel.unsharded import Unsharded
from trainmover.state.script import process
from trainmover.state.script.search.layout import ABSENT
from trainmover.state.script.things.crowds import Crowd
from trainmover.state.script.things.held import held_by
from trainmover.state.script.things.layers import Layers, Make
from trainmover.state.script.things.things import Things, in_words
from trainmover.state.script.things.untracked import TRAINED
from trainmover.state.script.values import NO_VALUE, PLAIN, Entry, entry_of, same
from trainmover.state.script.variables import Variables
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.modules import buffers_of, parameters_in
from trainmover.torch_internals.tensors import version_of
from trainmover.worker.step.retry.arguments import (
    BYTES_MAX,
    CONTAINERS,
    NO_BATCH,
    Arguments,
    Living,
    nbytes,
)
from trainmover.worker.step.retry.copies import MEMORY, Copies
from trainmover.worker.step.retry.forms import Forms, put_back_forms
from trainmover.worker.step.retry.leaves import Leaves
from trainmover.worker.step.retry.states import States, StatesCopy

_VARIABLE_BYTES_MAX = 1024 * 1024
_CHANGES_IN_PLACE = (Tensor, tuple, *CONTAINERS, *MEMORY)


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


class Moving:
    """Things of the script's that change as they are used, as they were when a step began.

    still  kinds of which nothing is ever noted
    """

    def __init__(self, things: Things) -> None:
        self._things, self.still = things, things.still
        self._noted: list[tuple[object, Entry]] = []
        self._makes: list[Make] = []
        self._tensors: list[tuple[Tensor, int]] = []

    def note(self, value: object) -> None:
        kind = type(value)
        if kind in PLAIN or kind in self.still or issubclass(kind, Tensor):
            return
        if isinstance(value, Layers):
            self._makes.append(value.make())
        elif self._things.untracked.has(value):
            tensors = self._things.untracked.tensors(value)
            self._tensors += [(tensor, version_of(tensor)) for tensor in tensors]
        elif self._things.is_moving(kind):
            self._noted.append((value, self._now(value)))
        elif not issubclass(kind, TRAINED):
            self.still.add(kind)

    def note_memory(self, value: object) -> None:
        """Too much of it to be copied."""
        self._noted.append((value, self._now(value)))

    def moved(self) -> str:
        """What has changed since, for people; "": nothing."""
        for value, before in self._noted:
            if not same(self._now(value), before):
                return in_words(value)
        if not all(make.is_same() for make in self._makes):
            return "other layers or hooks than the model had"
        if any(version_of(tensor) != version for tensor, version in self._tensors):
            return "a module or an optimizer that is not tracked"
        return ""

    def _now(self, value: object) -> Entry:
        entry = entry_of(value, things=self._things)
        return None if entry is NO_VALUE else entry


@dataclass
class Before:
    """Taken as a step starts. Copies are small: of bulk state there are some only where steps were
    seen to change it (`changes`), and `state.gradients` has its own.

    arguments  what the step is called with
    kept       what variables hold that may change in place
    leaves     tensors of both, as autograd knows them
    uncopied   tensors that are too large to be copied, and their versions: they must not change
    variables  those of the script outside of the step: who holds each, its name, and its value
    moving     of them and of the arguments those that nobody can put back, an iterator or a module
               that is not tracked: they must not change
    generators of random numbers, untracked, with their states
    process    what the script sets for its whole process
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
    variables: list[tuple[Any, Any, Any]]
    moving: Moving
    generators: list[tuple[Generator, dict[str, Any]]]
    process: dict[str, Any]
    layers: tuple[int, list[nn.Module]]

    @staticmethod
    def take(
        tracked: Tracked,
        args: Any,
        kwargs: Any,
        variables: Variables | None = None,
        buffers: Buffers | None = None,
        living: Living | None = None,
        states: States | None = None,
    ) -> "Before":
        """Cost: one RNG capture, the small states, a copy of buffers, batch and variables."""
        uncopied: list[tuple[Tensor, int]] = []
        kept = Copies()
        leaves = _leaves(tracked, kept, uncopied)
        outside = [] if variables is None else variables.outside()
        moving = Moving(Things() if variables is None else variables.things)
        for _, _, value in outside:
            kind = type(value)
            if kind not in PLAIN:
                if issubclass(kind, _CHANGES_IN_PLACE):
                    _keep(value, kept, uncopied, moving, leaves)
                if kind is Crowd and (entries := value.entries()) is not None:
                    for entry in entries:
                        _keep_object(entry, kept, uncopied, leaves)
                elif kind not in moving.still:
                    moving.note(value)
        arguments = Arguments(living or Living(), leaves, moving.note, moving.note_memory)
        arguments.keep(args, kwargs)
        drawn = [] if variables is None else variables.generators(outside)
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
            outside,
            moving,
            [(one, state_of(one)) for one in drawn],
            {} if variables is None else variables.settings(),
            (registered.layers, tracked.modules),
        )

    def why_not(self, variables: Variables | None = None) -> str:
        """Why the step cannot be run again; "" if it can: something was changed that could not be
        copied, or that nobody knew of.

        variables: of the script, where they are now
        """
        for tensor, version in self.uncopied:
            if version_of(tensor) != version:
                shape = "x".join(map(str, tensor.shape))
                return (
                    f"it has changed a tensor of shape {shape} in place; arguments that need a "
                    f"gradient, or are larger than {BYTES_MAX >> 20} MiB, and variables "
                    f"of more than {_VARIABLE_BYTES_MAX >> 20} MiB are not copied for a retry"
                )
        if why := self.leaves.why_not() or self.states.why_not():
            return why
        if registered.given_since(*self.layers):
            return "it has given the model a layer, and those it begins with are drawn once"
        if moved := self.moving.moved():
            return f"it has used {moved}, which cannot be put back"
        if overlooked := "" if variables is None else variables.overlooked():
            return f"{overlooked} has changed, and no line of the script shows that it may"
        return ""

    def restore(self, tracked: Tracked) -> None:
        """Put everything back. See `why_not`."""
        rng.restore(self.rng_state)
        for generator, state in self.generators:
            set_state(generator, state)
        process.put_back(self.process)
        self.settings.put_back()
        self.states.put_back()
        self.leaves.put_back()
        self.kept.put_back()
        self.arguments.put_back()
        for owner, name, value in self.variables:
            _set(owner, name, value)
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


def _keep(
    value: Any,
    kept: Copies,
    uncopied: list[tuple[Tensor, int]],
    moving: "Moving",
    leaves: Leaves,
) -> None:
    """What may change in place."""
    if isinstance(value, Tensor):
        leaves.add(value)
        if value.requires_grad or nbytes(value) > _VARIABLE_BYTES_MAX:
            uncopied.append((value, version_of(value)))
        else:
            kept.add(value)
    elif isinstance(value, MEMORY):
        if nbytes(value) > _VARIABLE_BYTES_MAX:
            moving.note_memory(value)
        else:
            kept.add_memory(value)
    elif isinstance(value, tuple) or (isinstance(value, CONTAINERS) and kept.add_container(value)):
        entries = value.values() if isinstance(value, dict) else value
        for entry in entries:
            if isinstance(entry, _CHANGES_IN_PLACE):
                _keep(entry, kept, uncopied, moving, leaves)


def _keep_object(
    value: object, kept: Copies, uncopied: list[tuple[Tensor, int]], leaves: Leaves
) -> None:
    """In a crowd: its attributes, and the tensors and arrays that they are. What is trained is put
    back otherwise."""
    if isinstance(value, NO_BATCH):
        return
    if (held := held_by(value)) and kept.add_container(held):
        for one in held.values():
            if isinstance(one, MEMORY) and nbytes(one) <= BYTES_MAX:
                kept.add_memory(one)
            elif isinstance(one, Tensor) and not one.requires_grad:
                leaves.add(one)
                if nbytes(one) <= BYTES_MAX:
                    kept.add(one)
                else:
                    uncopied.append((one, version_of(one)))


def _set(owner: Any, name: Any, value: Any) -> None:
    """What stands there already is not stored again."""
    if isinstance(owner, CellType):
        if value is ABSENT:
            del owner.cell_contents
        else:
            owner.cell_contents = value
    elif isinstance(owner, dict):
        if value is ABSENT:
            owner.pop(name, None)
        else:
            owner[name] = value
    elif isinstance(owner, list | deque):
        if name < len(owner):
            owner[name] = value
    elif value is not ABSENT and not isinstance(owner, tuple) and _now(owner, name) is not value:
        setattr(owner, name, value)


def _now(owner: object, name: str) -> Any:
    """What stands there, without asking the owner's own code."""
    if isinstance(owner, type):
        return vars(owner).get(name, ABSENT)
    with suppress(AttributeError):
        return object.__getattribute__(owner, name)
    return ABSENT


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
