"""What a script asked to keep: objects by name, each with state_dict() and load_state_dict().

Two kinds, because they travel differently. *Bulk*: modules, optimizers, and whatever else holds
more than 64 KiB of tensors; moved from memory to memory when a rank changes machines (`transfer`).
*Small*: the rest (schedulers, counters, scalers); part of the rank record of every step.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
import xxhash
from torch import Tensor, nn

from trainmover.errors import ProtocolError, StateMismatch, UserError
from trainmover.state import encode, tensor_bytes
from trainmover.state.buffers import Buffers
from trainmover.state.modes import Modes
from trainmover.state.placing import HasState, Leaves, bulk_leaves, destinations, load_bulk
from trainmover.state.signature import signature_of

__all__ = ["HasState", "Leaves", "Tracked", "bulk_leaves", "destinations", "load_bulk"]

SMALL_BYTES_MAX = 64 * 1024


class Tracked:
    """The tracked objects of one rank, in the order they were added."""

    def __init__(self) -> None:
        self._objects: dict[str, HasState] = {}
        self._bulk: set[str] = set()  # Once bulk, always: both ends of a move must agree.
        self._sized: set[str] = set()
        self._buffers: dict[str, Buffers] = {}
        self._modes: dict[str, Modes] = {}
        self._beside: dict[str, HasState] = {}  # Parts of modules that are small, by name.

    def add(self, name: str, obj: object) -> None:
        """Keep `obj` under `name`; a second add under the same name replaces the first.

        Raises UserError if it lacks the two methods.
        """
        if not isinstance(obj, HasState) or isinstance(obj, type):
            raise UserError(
                f"`{name}` cannot be tracked: a {type(obj).__name__} has no state_dict() "
                "and load_state_dict().",
                means="It would be lost when this rank moves to another machine.",
                do="Give it both methods, or track the object that holds it.",
            )
        self._bulk.discard(name)
        self._sized.discard(name)
        self._objects[name] = obj
        if isinstance(obj, nn.Module | torch.optim.Optimizer):
            self._bulk.add(name)
        self._beside.pop(f"{name}.modes", None)
        self._beside.pop(f"{name}.buffers", None)
        self._buffers.pop(name, None)
        self._modes.pop(name, None)
        if isinstance(obj, nn.Module):
            self._beside[f"{name}.modes"] = self._modes[name] = Modes(obj)
            if Buffers(obj).state_dict():
                self._buffers[name] = self._beside[f"{name}.buffers"] = Buffers(obj)

    def __getitem__(self, name: str) -> HasState:
        return self._objects[name]

    def __contains__(self, name: object) -> bool:
        return name in self._objects

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def items(self) -> Iterable[tuple[str, HasState]]:
        return self._objects.items()

    @property
    def modules(self) -> list[nn.Module]:
        """Every module of every tracked one, as they were when it was added."""
        return [part for modes in self._modes.values() for part in modes.modules]

    def bulk_names(self) -> list[str]:
        """In the order of `add`. Looks into each object once."""
        for name, obj in self._objects.items():
            if name not in self._bulk and name not in self._sized:
                self._sized.add(name)
                if _is_large(obj.state_dict()):
                    self._bulk.add(name)
        return [name for name in self._objects if name in self._bulk]

    def small_names(self) -> list[str]:
        bulk = set(self.bulk_names())
        return [name for name in self._objects if name not in bulk]

    def small_states(self) -> dict[str, bytes]:
        """Encoded state of every small object, for the rank record.

        An object that grew past the limit since the last call becomes bulk and is left out.
        What modules hold beside their parameters is among them: `model.buffers`, `model.modes`.
        Raises UserError, naming object and path, for state that cannot be sent.
        """
        states = {}
        for name in self.small_names():
            state = self._objects[name].state_dict()
            data = _encode_named(name, state)
            if len(data) > SMALL_BYTES_MAX and _is_large(state):
                self._bulk.add(name)
            else:
                states[name] = data
        for name, part in self._beside.items():
            states[name] = encode.encode(part.state_dict())
        return states

    def load_small(self, states: Mapping[str, bytes]) -> None:
        """Put back what `small_states` gave. Raises StateMismatch for a name not tracked here."""
        for name, data in states.items():
            (self._beside.get(name) or self._known(name)).load_state_dict(encode.decode(data))

    def bulk_header(self) -> tuple[bytes, list[Tensor]]:
        """All bulk objects: one header, and their live tensors in its order. Fits an Offer."""
        leaves = {name: bulk_leaves(self._objects[name]) for name in self.bulk_names()}
        header = encode.encode({name: leaf.structure for name, leaf in leaves.items()})
        return header, [tensor for leaf in leaves.values() for tensor in leaf.tensors]

    def bulk_destinations(self, header: bytes) -> list[Tensor]:
        """Where to receive the tensors of a `bulk_header`; see `destinations`. StateMismatch."""
        structures = _structures(header)
        return [
            tensor
            for name, structure in structures.items()
            for tensor in destinations(self._known(name), structure)
        ]

    def load_bulk_header(self, header: bytes, tensors: Sequence[Tensor]) -> None:
        """Make all objects of a `bulk_header` those of the source; see `load_bulk`."""
        remaining = list(tensors)
        for name, structure in _structures(header).items():
            count = len(encode.holes(structure))
            load_bulk(self._known(name), structure, remaining[:count])
            self._bulk.add(name)
            del remaining[:count]

    def signature(self) -> str:
        """What kind of state this is, whatever its values: see `signature_of`."""
        return signature_of(self._objects.items())

    def replica_digest(self) -> str:
        """Digest of what replicas share: bulk state without the buffers of modules."""
        return self._digest(self.bulk_names(), without_buffers=True)

    def digest(self, names: Iterable[str] | None = None) -> str:
        """XXH3-128 over names, structure and bytes of the tensors, as 32 hex digits.

        Equal in two processes if and only if the states are equal bit for bit; where the tensors
        lie, their strides and the insertion order of dicts do not matter.
        """
        return self._digest(self._objects if names is None else names, without_buffers=False)

    def _digest(self, names: Iterable[str], *, without_buffers: bool) -> str:
        hashed = xxhash.xxh3_128()
        for name in sorted(names):
            state = self._known(name).state_dict()
            if without_buffers and name in self._buffers:
                own = self._buffers[name].state_dict()
                state = {key: value for key, value in state.items() if key not in own}
            structure, tensors = encode.split(state, canonical=True)
            for part in (name.encode(), structure):
                hashed.update(len(part).to_bytes(8, "little"))
                hashed.update(part)
            for tensor in tensors:
                hashed.update(tensor_bytes.view_bytes(encode.as_local(tensor)))
        return hashed.hexdigest()

    def _known(self, name: str) -> HasState:
        obj = self._objects.get(name)
        if obj is None:
            raise StateMismatch(
                f"The source tracks `{name}`, this process does not.",
                means="This process cannot take the rank: its script tracks other objects.",
                do="Call job.track with the same names wherever the script runs.",
            )
        return obj


def _is_large(state: object) -> bool:
    structure, tensors = encode.split(state)
    return any(hole.sharded for hole in encode.holes(structure)) or (
        sum(tensor.nbytes for tensor in tensors) > SMALL_BYTES_MAX
    )


def _encode_named(name: str, state: object) -> bytes:
    try:
        return encode.encode(state)
    except UserError as error:
        raise UserError(f"{name}: {error.happened}", means=error.means, do=error.do) from None


def _structures(header: bytes) -> dict[str, bytes]:
    structures = encode.decode(header)
    if type(structures) is not dict or any(type(s) is not bytes for s in structures.values()):
        raise ProtocolError(
            "A header of tracked state is malformed.",
            means="Nothing was taken from it.",
            do="All processes of a job must run the same version of trainmover.",
        )
    return structures
