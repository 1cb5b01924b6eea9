# SPDX-License-Identifier: Apache-2.0
"""A few elements of the state that replicas share, at every gate: what they no longer hold alike
shows by the first gate at which one of the elements is among those that differ.

All ranks take the same elements, of one parameter and of what optimizers keep for it, chosen by the
number of the step (some 30 microseconds), and chain the hashes: a chain is
that of another rank as long as all their samples since it began were. It begins anew behind every
round, in which all of the state is compared. One of a machine that is lost is in the rank's record,
so whoever is to give its state can be told from a replica though the rank itself is gone.

A gate that is followed by an update in which no other rank has a part also tells of gradients that
are about to be applied: ranks that hold the same, and apply something else, hold the same no more.
So that shows one gate before the state itself does.

Only what lies where it always lies is sampled: parameters, what optimizers keep for them, and now
and then other objects that hand out the memory they work with. Of large buffers, which may begin to
be each rank's own at any step, all is in it, as a hash (`kinds.large_buffers`).

Whoever reads from a device waits until it has done all that it was given, and behind a gate's
sample the record waits. So what lies on one is copied as the step begins (`look_ahead`), and of
gradients that lie on one nothing is read.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import xxhash
from torch import Tensor, nn

from trainmover.asked import Pieces
from trainmover.errors import ProtocolError
from trainmover.ids import Step
from trainmover.state import encode, staging, tensor_bytes
from trainmover.state.proof import device_digest
from trainmover.state.tracked import HasState, Tracked
from trainmover.torch_internals.tensors import version_of
from trainmover.torch_internals.watching.gradients import plain

GRADIENTS = 4
"""Parameters of the optimizer whose gradients are in each sample."""
OBJECTS_EVERY = 8
"""Steps from one sample of other objects to the next: their state has to be asked for."""
BYTES = 32
KEPT = 4
_SPREAD = 0x9E3779B1
_PLAIN = (Tensor, nn.Parameter)


class Sample(NamedTuple):
    """gate: step at whose gate it was taken; since: that of the first in its chain."""

    gate: int
    since: int
    chain: bytes

    def parts_from(self, others: Mapping[int, "Sample"]) -> bool:
        """Whether the rank of `others`, by their gates, held something else; False: not known."""
        other = others.get(self.gate)
        return other is not None and other.since == self.since and other.chain != self.chain


@dataclass(frozen=True)
class Proof:
    """What a source tells everybody who is to take its state.

    digest   of the shared state, where it stands
    samples  by gate, the newest of them
    """

    digest: str
    samples: dict[int, Sample]

    def to_bytes(self) -> bytes:
        """For the wire."""
        return encode.encode([self.digest, [list(one) for one in self.samples.values()]])

    @staticmethod
    def from_bytes(data: bytes) -> "Proof":
        """Raises ProtocolError on malformed bytes."""
        try:
            digest, told = encode.decode(data)
            samples = [Sample(*one) for one in told]
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"These bytes prove nothing of a state: {error}.") from error
        return Proof(digest, {sample.gate: sample for sample in samples})


@dataclass
class _Places:
    """Where samples are taken. Of other objects: those whose state is their own memory. on_device:
    some parameters lie on one."""

    of: tuple[int, ...]
    parameters: list[Tensor]
    optimizers: list[torch.optim.Optimizer]
    objects: list[HasState]
    on_device: bool = False


class _Piece(NamedTuple):
    """Elements of a tensor that lie beside each other: which, and as bytes."""

    local: Tensor
    first: int
    length: int

    @property
    def mark(self) -> tuple[int, int, int, int]:
        """Another one if it was written to, or lies elsewhere."""
        return version_of(self.local), self.local.data_ptr(), self.first, self.length

    def read(self) -> bytes:
        """b"" where there is no memory: somebody has freed it for now, as sharded modules do."""
        local, size = self.local, self.local.element_size()
        if local.is_cpu and local.is_contiguous() and not local.is_neg():
            begin = local.data_ptr()
            at = begin + self.first * size
            return ctypes.string_at(at, self.length * size) if begin else b""
        last = self.first + self.length
        return bytes(tensor_bytes.read_range(local, self.first * size, last * size))


class Samples:
    """Of one rank, of its newest gates.

    newest  None before the first gate
    hash    of that alone, without those before it in its chain; 63 bits
    """

    def __init__(self, tracked: Tracked) -> None:
        self.newest: Sample | None = None
        self.hash = 0
        self._tracked = tracked
        self._taken: dict[int, Sample] = {}
        self._places = _Places((), [], [], [])
        self._ordered: dict[tuple[int, int], tuple[list[Tensor], list[Tensor]]] = {}  # By group.
        self._ahead: dict[tuple[int, int, int, int], Callable[[], bytes]] = {}

    def look_ahead(self, step: Step) -> None:
        """The step begins: have the device copy what its sample needs, behind what it was given."""
        self._ahead = {}
        places = self._places_now()
        if not places.on_device:
            return
        for piece in _pieces(_chosen(places, step), step):
            if _can_be_copied(piece.local):
                flat = tensor_bytes.flat_bytes(piece.local)
                size = piece.local.element_size()
                first, last = piece.first * size, (piece.first + piece.length) * size
                self._ahead[piece.mark] = staging.begin_copy(flat[first:last])

    def take(
        self,
        step: Step,
        *,
        anew: bool,
        applies: torch.optim.Optimizer | None = None,
        ahead: bool = False,
        hashes: Sequence[bytes] = (),
    ) -> None:
        """At the gate of `step`, again if it is run again.

        anew     begin the chain here
        applies  what is to apply its gradients behind the gate
        ahead    nobody has changed what is sampled since the step began
        hashes   of what is not sampled, but known as a whole
        """
        before = None if anew else self._taken.get(step - 1)
        own = xxhash.xxh3_64()
        for part in self._bytes(step, ahead=ahead):
            own.update(part)
        for part in self._gradients(applies, step) if applies is not None else ():
            own.update(part)
        for part in hashes:
            own.update(part)
        self.hash = own.intdigest() >> 1
        chain = xxhash.xxh3_64(before.chain if before is not None else b"")
        chain.update(own.digest())
        since = before.since if before is not None else int(step)
        self.newest = self._taken[step] = Sample(int(step), since, chain.digest())
        for old in [gate for gate in self._taken if gate <= step - KEPT]:
            del self._taken[old]

    def told(self) -> dict[int, Sample]:
        """By gate, for who is to take this rank's state, and goes on with it."""
        return dict(self._taken)

    def go_on_from(self, told: Mapping[int, Sample]) -> None:
        """Of the rank whose state was taken."""
        self._taken = dict(told)
        self.newest = max(self._taken.values(), default=None)

    def forget(self) -> None:
        """Nothing is held here any more."""
        self.newest, self._taken, self._places = None, {}, _Places((), [], [], [])
        self._ordered, self._ahead = {}, {}

    def _bytes(self, step: Step, *, ahead: bool) -> list[bytes]:
        places, copied = self._places_now(), self._ahead if ahead else {}
        chosen = _chosen(places, step)
        if copied:
            found = [
                copied[one.mark]() if one.mark in copied else one.read()
                for one in _pieces(chosen, step)
            ]
        else:
            found = _read(chosen, step)
        if places.objects and step % OBJECTS_EVERY == 0:
            turn = step // OBJECTS_EVERY
            tensors = _tensors(places.objects[turn % len(places.objects)])
            if tensors:
                found += _read([tensors[turn % len(tensors)]], step)
        return found

    def _gradients(self, optimizer: torch.optim.Optimizer, step: Step) -> list[bytes]:
        groups = [group["params"] for group in optimizer.param_groups if group["params"]]
        if not groups:
            return []
        number = step % len(groups)
        given, at = groups[number], (id(optimizer), number)
        before, parameters = self._ordered.get(at, ([], []))
        if before is not given or len(parameters) != len(given):
            parameters = self._in_order(given)
            self._ordered[at] = given, parameters
        turns = range(min(GRADIENTS, len(parameters)))
        chosen = [parameters[(step * GRADIENTS + turn) % len(parameters)].grad for turn in turns]
        near = [
            plain(one)
            for one in chosen
            if one is not None
            and not one.is_sparse
            and (one.is_cpu or not device_digest.lies_elsewhere(one))
        ]
        return _read(near, step)

    def _in_order(self, parameters: list[Tensor]) -> list[Tensor]:
        """Of the modules, as on every rank: a script may have chosen them by a set."""
        at = {id(one): number for number, one in enumerate(self._places_now().parameters)}
        return sorted(parameters, key=lambda one: at.get(id(one), len(at)))

    def _places_now(self) -> _Places:
        of = self._tracked.ids()
        if of != self._places.of:
            self._places, self._ordered = self._look(of), {}
        return self._places

    def _look(self, of: tuple[int, ...]) -> _Places:
        modules = [obj for _, obj in self._tracked.items() if isinstance(obj, nn.Module)]
        parameters = {id(one): one for module in modules for one in module.parameters()}
        optimizers = self._tracked.optimizers
        others = [
            self._tracked[name]
            for name in self._tracked.bulk_names()
            if name in self._tracked
            and not isinstance(self._tracked[name], nn.Module | torch.optim.Optimizer)
        ]
        objects = [obj for obj in others if _hands_out_memory(obj)]
        found: list[Tensor] = list(parameters.values())
        away = any(device_digest.lies_elsewhere(one) for one in found)
        return _Places(of, found, optimizers, objects, away)


def _chosen(places: _Places, step: Step) -> list[Tensor]:
    """A parameter, and what optimizers keep for it."""
    if not places.parameters:
        return []
    parameter = places.parameters[step % len(places.parameters)]
    chosen: list[Tensor] = [parameter]
    for optimizer in places.optimizers:
        kept = optimizer.state.get(parameter, {})
        chosen += [kept[name] for name in sorted(kept) if isinstance(kept[name], Tensor)]
    return chosen


def _hands_out_memory(obj: HasState) -> bool:
    first, second = _tensors(obj), _tensors(obj)
    return [one.data_ptr() for one in first] == [one.data_ptr() for one in second]


def _tensors(obj: HasState) -> list[Tensor]:
    """In the order of their paths; of nested dicts and lists too."""
    return [tensor for _, tensor in sorted(_walk("", obj.state_dict()), key=lambda one: one[0])]


def _walk(path: str, value: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _walk(f"{path}.{key}", entry)
    elif isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            yield from _walk(f"{path}.{number}", entry)


def _read(tensors: list[Tensor], step: Step) -> list[bytes]:
    """The pieces of all; in one call where all lie in this process's memory as they are, which is
    the usual case."""
    addresses, sizes = [], []
    for one in tensors:
        if type(one) not in _PLAIN or not one.is_cpu or not one.is_contiguous() or one.is_neg():
            return [piece.read() for piece in _pieces(tensors, step)]
        # As `_span`, without its call.
        count, size = one.numel(), one.element_size()
        length = max(1, BYTES // size)
        first = 0 if count <= length else step * _SPREAD % (count - length + 1)
        if (begin := one.data_ptr()) and count:
            addresses.append(begin + first * size)
            sizes.append(min(length, count) * size)
    return [Pieces(addresses, sizes).read()]


def _pieces(tensors: Iterable[Tensor], step: Step) -> list[_Piece]:
    """Of each a few elements that lie beside each other, wherever the step says."""
    found = []
    for tensor in tensors:
        local = encode.as_local(tensor) if type(tensor) not in _PLAIN else tensor
        first, length = _span(local, step)
        if length:
            found.append(_Piece(local, first, length))
    return found


def _span(local: Tensor, step: Step) -> tuple[int, int]:
    """The first of them, and how many."""
    count = local.numel()
    length = max(1, BYTES // local.element_size())
    first = 0 if count <= length else step * _SPREAD % (count - length + 1)
    return first, min(length, count)


def _can_be_copied(local: Tensor) -> bool:
    return device_digest.lies_elsewhere(local) and local.is_contiguous() and local.data_ptr() != 0
