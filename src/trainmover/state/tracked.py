# SPDX-License-Identifier: Apache-2.0
"""What a script asked to keep: objects by name, each with state_dict() and load_state_dict().

Two kinds, because they travel differently. *Bulk*: modules, optimizers, and whatever else holds
more than 64 KiB of tensors; moved from memory to memory when a rank changes machines (`transfer`).
*Small*: the rest (schedulers, counters, scalers); part of the rank record of every step.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainmover.errors import ProtocolError, StateMismatch, UserError
from trainmover.state import encode, loading
from trainmover.state.arrangement import Arrangement, arrangement_of, in_common
from trainmover.state.items import Encodes, HasState, Item
from trainmover.state.kinds.finding import GRADIENTS, gradients_of, parts_of
from trainmover.state.kinds.generators import Generator, KeptGenerator
from trainmover.state.kinds.gradients import Gradients
from trainmover.state.kinds.modules.buffers import Buffers
from trainmover.state.kinds.modules.large_buffers import KIND
from trainmover.state.kinds.modules.modes import Modes
from trainmover.state.kinds.optimizers.grouped import Grouped, paths_by_name
from trainmover.state.kinds.optimizers.settings import Settings
from trainmover.state.kinds.optimizers.zero import shard_of
from trainmover.state.kinds.parallel.hooks import Hooks
from trainmover.state.kinds.parallel.unsharded import Unsharded
from trainmover.state.kinds.parallel.used import Used
from trainmover.state.moments import IN_BYTES, Moment
from trainmover.state.placing import Leaves, bulk_leaves, destinations, load_bulk
from trainmover.state.proof.digest import Digest, digest_of
from trainmover.state.proof.signature import signature_of
from trainmover.state.reading import Reading, is_own
from trainmover.torch_internals.modules import tensors_of
from trainmover.torch_internals.optimizers import is_zero

__all__ = ["HasState", "Leaves", "Tracked", "bulk_leaves", "destinations", "load_bulk"]

SMALL_BYTES_MAX = 64 * 1024
_NOTHING = encode.encode({})


class Tracked:
    """The tracked objects of one rank, in the order they were added.

    calls       how many collectives the script has begun
    count       how many objects there are
    modules     every module of every tracked one, as they were when it was added
    large_buffers  under which names small state has the hashes of those
    modes       what each tracked module and its wrappers are set to
    optimizers  the tracked ones, and those in which a tracked shard lies
    gradients   those that lie on each tracked module's parameters, and on others that a tracked
                optimizer updates
    unsharded   what FSDP2 keeps of gradients beside each tracked module
    """

    def __init__(self, calls: Callable[[], int] = lambda: 0) -> None:
        self._calls = calls
        self._objects: dict[str, HasState] = {}
        self._bulk: set[str] = set()  # Once bulk, always: both ends of a move must agree.
        self._sized: set[str] = set()
        self._grouped: dict[str, Grouped] = {}
        self._parts: dict[str, Item] = {}  # What lies beside these objects, by path.
        self._look()

    def _look(self) -> None:
        """What every step asks for, found once, whenever something is added."""
        self.count = len(self._objects)
        self._by_kind: dict[str, dict[str, Any]] = {}
        for item in self._parts.values():
            self._by_kind.setdefault(item.kind, {})[item.owner] = item.value
        self._large = {i.path: i.large for i in self._parts.values() if i.large is not None}
        self._in_bytes = {
            moment: [(i.path, *_asked(i.value)) for i in self._parts.values() if i.does(moment, do)]
            for moment, do in IN_BYTES.items()
        }
        self.large_buffers = [i.path for i in self._parts.values() if i.kind == KIND]
        self.modes: list[Modes] = list(self._of("modes").values())
        self.modules = [part for each in self.modes for part in each.modules]
        tracked = [o for o in self._objects.values() if isinstance(o, torch.optim.Optimizer)]
        settings: Mapping[str, Settings] = self._of("settings")
        outside = [s.optimizer for name, s in settings.items() if s.optimizer is not self[name]]
        self.optimizers = tracked + outside
        self.gradients: list[Gradients] = list(self._of(GRADIENTS).values())
        self.unsharded: list[Unsharded] = list(self._of("unsharded").values())

    def add(self, name: str, obj: object) -> None:
        """Keep `obj` under `name`; a second add under the same name replaces the first.

        Of a ZeroRedundancyOptimizer the shard that is here; of a generator of random numbers its
        state. Raises UserError if it lacks the two methods, or has no shape yet.
        """
        if isinstance(obj, Generator):
            obj = KeptGenerator(name, obj)
        if not isinstance(obj, HasState) or isinstance(obj, type):
            raise UserError(
                f"`{name}` cannot be tracked: a {type(obj).__name__} has no state_dict() "
                "and load_state_dict().",
                means="It would be lost when this rank moves to another machine.",
                do="Give it both methods, or track the object that holds it.",
            )
        if isinstance(obj, nn.Module):
            _check_formed(name, obj)
        self._bulk.discard(name)
        self._sized.discard(name)
        shard = shard_of(obj)
        self._objects[name] = inside = obj if shard is None else shard
        if isinstance(inside, nn.Module | torch.optim.Optimizer):
            self._bulk.add(name)
        self._grouped.pop(name, None)
        if isinstance(obj, torch.optim.Optimizer):
            self._grouped[name] = Grouped(obj, self._named_parameters)
        found = parts_of(name, obj, self._consumers, lambda: self.optimizers)
        others = {path: item for path, item in self._parts.items() if item.owner != name}
        self._parts = others | {item.path: item for item in found}
        self._part_loose_gradients()
        self._look()

    def _part_loose_gradients(self) -> None:
        """Those on parameters that an optimizer updates and no tracked module has, as where a
        script tracks an object of its own that saves adapters alone."""
        of_modules = {*map(id, self._named_parameters().values())}
        for name, obj in self._objects.items():
            if not isinstance(obj, torch.optim.Optimizer):
                continue
            every = [one for group in obj.param_groups for one in group["params"]]
            loose = [one for one in every if id(one) not in of_modules]
            path, known = f"{name}.{GRADIENTS}", self._of(GRADIENTS).get(name)
            if not loose:
                self._parts.pop(path, None)
            elif known is None or not known.is_of(loose):
                self._parts[path] = gradients_of(name, loose, self._consumers)

    def clear(self) -> None:
        """Drop every object."""
        self._bulk, self._sized = set(), set()
        self._objects, self._grouped, self._parts = {}, {}, {}
        self._look()

    def __getitem__(self, name: str) -> HasState:
        return self._objects[name]

    def __contains__(self, name: object) -> bool:
        return name in self._objects

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def __len__(self) -> int:
        return self.count

    def items(self) -> Iterable[tuple[str, HasState]]:
        return self._objects.items()

    def ids(self) -> tuple[int, ...]:
        """Of the objects, in their order."""
        return tuple(map(id, self._objects.values()))

    @property
    def is_gathered(self) -> bool:
        """Whether to read its state would have an effect: see `Unsharded`."""
        return any(part.is_gathered for part in self.unsharded)

    def gather_anew(self) -> None:
        """Members are exchanged: see `Unsharded`."""
        for part in self.unsharded:
            part.gather_anew()

    def in_common(self) -> list[list[str]]:
        """Paths that have memory in common: see `arrangement`. [] if that cannot be looked at
        now."""
        return [] if self.is_gathered else in_common([*self.items(), *self.beside()])

    def arrangement(self, moved: Collection[str] = ()) -> Arrangement:
        """What it is beside its values; of nothing if that cannot be looked at now."""
        items = () if self.is_gathered else self.items()
        return arrangement_of(items, self.beside(), moved)

    def moved_since(self, small: Mapping[str, bytes]) -> list[str]:
        """Names and paths of small state that is another by now."""
        return [name for name, data in self.small_states().items() if small.get(name) != data]

    def beside(self) -> list[tuple[str, HasState]]:
        """What of that which lies beside objects the script's own code may have elsewhere, too."""
        kinds = ("attributes", "unsaved", "hooks")
        return [(path, item.value) for path, item in self._parts.items() if item.kind in kinds]

    def _of(self, kind: str) -> Mapping[str, Any]:
        """What lies beside each object that has something of the kind, by name of the object."""
        return self._by_kind.get(kind, {})

    def _named_parameters(self) -> dict[str, Tensor]:
        """As optimizers have them, also while FSDP2 has put whole ones in their place."""
        shards = {key: shard for part in self.unsharded for key, shard in part.shards().items()}
        return {
            f"{name}.{path}": shards.get(id(parameter), parameter)
            for name, obj in self._objects.items()
            if isinstance(obj, nn.Module)
            for path, parameter in obj.named_parameters()
        }

    def _regroup(self, header: bytes) -> None:
        given = _header(header)["groups"]
        for name in given:
            self._known(name)
        for name, grouped in self._grouped.items():
            grouped.load_state_dict(given.get(name, {}))

    def _groups(self) -> dict[str, dict[str, Any]]:
        states = {name: grouped.state_dict() for name, grouped in self._grouped.items()}
        return {name: state for name, state in states.items() if state}

    def _consumers(self) -> set[int]:
        return set(map(id, self._updated_by_optimizers()))

    def _updated_by_optimizers(self) -> Iterator[Tensor]:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]

    def updated(self) -> Iterator[Tensor]:
        """What steps write to: tensors of modules, and parameters of optimizers."""
        yield from self._updated_by_optimizers()
        for part in self.modules:
            yield from (one for one in tensors_of(part).values() if one is not None)

    def bulk_names(self) -> list[str]:
        """In the order of `add`, then what is too large for a record at this moment. Looks into
        each object once."""
        self._size()
        large = [name for name, part in self._large.items() if part.state_dict()]
        return [name for name in self._objects if name in self._bulk] + large

    def _size(self) -> None:
        for name, obj in self._objects.items():
            if name in self._sized:
                continue
            self._sized.add(name)
            if name in self._bulk and not is_own(obj):
                continue
            begun, reading = self._calls(), Reading(name, obj, self._objects.values())
            state = obj.state_dict()
            if self._calls() != begun:
                raise _gathers(name, obj)
            reading.check()
            if name not in self._bulk and _is_large(state):
                self._bulk.add(name)

    def _bulk_object(self, name: str) -> HasState:
        return self._large[name] if name in self._large else self._known(name)

    def small_names(self) -> list[str]:
        self._size()
        return [name for name in self._objects if name not in self._bulk]

    def small_states(self, moment: Moment = Moment.RECORD) -> dict[str, bytes]:
        """Encoded state of every small object, for the rank record; or what of it a retry puts
        back as bytes, or a round compares.

        What lies beside objects is among it, as the table says: `model.buffers`, `model.modes`.
        An object that grew past the limit since the last call becomes bulk and is left out.
        Raises UserError, naming object and path, for state that cannot be sent.
        """
        states = {}
        if len(self._sized) < self.count:
            self._size()
        for name, obj in list(self._objects.items()):
            if name in self._bulk:
                continue
            state = obj.state_dict()
            data = encode.plain(state)
            if data is None:
                try:
                    data = encode.encode(state)
                except UserError as error:
                    raise _named(name, error) from None
            if len(data) > SMALL_BYTES_MAX and _is_large(state):
                self._bulk.add(name)
            else:
                states[name] = data
        for path, ask, is_encoded, any_is in self._in_bytes[moment]:
            said: Any = ask() if any_is else None
            states[path] = (said if is_encoded else encode.encode(said)) if said else _NOTHING
        return states

    def load_small(self, states: Mapping[str, bytes], *, on_the_way: bool = False) -> None:
        """Put back what `small_states` gave.

        on_the_way: groups of an optimizer that a step has added come with its bulk state, which
        has no place here yet

        Raises StateMismatch for a name not tracked here, and for an object that does not take its
        state: see `loading`.
        """
        for name, data in states.items():
            part = self._parts.get(name)
            if part is None:
                loading.load(name, self._known(name), data)
            elif on_the_way and isinstance(part.value, Settings):
                part.value.load_what_is_here(encode.decode(data))
            else:
                part.value.load_state_dict(encode.decode(data))

    @contextmanager
    def optimizers_as(self, states: Mapping[str, bytes]) -> Iterator[None]:
        """Their parameter groups are set as in these `small_states`, for as long as this lasts."""
        settings: Mapping[str, Settings] = self._of("settings")
        with ExitStack() as stack:
            for name, one in settings.items():
                if (state := states.get(f"{name}.settings")) is not None:
                    stack.enter_context(one.shown_as(encode.decode(state)))
            yield

    def bulk_header(self) -> tuple[bytes, list[Tensor]]:
        """What replicas share of all bulk objects: one header, live tensors in its order."""
        structures, shared = {}, []
        for name in self.bulk_names():
            structures[name], tensors = bulk_leaves(self._bulk_object(name))
            shared += self._shared(name, structures[name], tensors)
        return encode.encode({"objects": structures, "groups": self._groups()}), shared

    def bulk_paths(self, header: bytes) -> list[str]:
        """Of the tensors of a `bulk_header`, in its order: as in `replica_digest`."""
        paths, groups = [], _header(header)["groups"]
        for name, structure in _structures(header).items():
            own = self._own_buffers(name)
            shared = [hole.path for hole in encode.holes(structure) if hole.path not in own]
            if self._in_order(name) is not None:
                shared = paths_by_name(shared, groups.get(name, {}))
            paths += [f"{name}.{path}" for path in shared]
        return paths

    def fits(self, header: bytes) -> bool:
        """Whether a `bulk_header` is of what is tracked here, and of these parameter groups. If
        not, lines that the source has run since have made others."""
        groups = _header(header)["groups"]
        known = self._objects.keys() >= {*groups, *_structures(header)}
        return known and all(
            grouped.is_as(groups.get(name, {})) for name, grouped in self._grouped.items()
        )

    def bulk_destinations(self, header: bytes) -> list[Tensor]:
        """Where to receive the tensors of a `bulk_header`; see `destinations`. StateMismatch.

        Optimizers get the parameter groups that they have there first.
        """
        self._regroup(header)
        return [
            tensor
            for name, structure in _structures(header).items()
            for tensor in self._shared(
                name, structure, destinations(self._bulk_object(name), structure)
            )
        ]

    def load_bulk_header(self, header: bytes, tensors: Sequence[Tensor]) -> None:
        """Make all objects of a `bulk_header` those of the source; see `load_bulk`.

        Buffers that replicas do not share stay as they are. What was too large for a record here
        only, as gradients that the step under way has left, is dropped: the source has none.
        """
        self._regroup(header)
        remaining = iter(tensors)
        structures = _structures(header)
        for name in self._large.keys() - structures.keys():
            self._large[name].load_state_dict({})
        for name, structure in structures.items():
            own = self._own_buffers(name)
            values = [
                own[hole.path] if hole.path in own else next(remaining)
                for hole in encode.holes(structure)
            ]
            load_bulk(self._bulk_object(name), structure, values)
            if name in self._objects:
                self._bulk.add(name)

    def _shared(self, name: str, structure: bytes, tensors: Sequence[Tensor]) -> list[Tensor]:
        own = self._own_buffers(name)
        holes = encode.holes(structure)
        return [t for hole, t in zip(holes, tensors, strict=True) if hole.path not in own]

    def _own_buffers(self, name: str) -> Mapping[str, Tensor]:
        """Those of a module that travel with the rank record, by path in its state."""
        buffers: Buffers | None = self._of("buffers").get(name)
        return {} if buffers is None else buffers.live()

    def signature(self) -> str:
        """What kind of state this is, whatever its values: see `signature_of`."""
        return signature_of(
            (name, type(obj).__qualname__, self._compared(name, obj))
            for name, obj in sorted(self._objects.items())
        )

    def shared_states(self) -> Iterator[tuple[str, Any]]:
        """What replicas share, by name: bulk state without the buffers of modules."""
        for name in sorted(self.bulk_names()):
            state = self._compared(name, self._bulk_object(name))
            if own := self._own_buffers(name):
                state = {key: value for key, value in state.items() if key not in own}
            yield name, state

    def buffer_states(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """The buffers that replicas do not share, by name of their module."""
        for name, buffers in self._of("buffers").items():
            yield name, buffers.live()

    def replica_digest(self, known: Mapping[str, bytes] | None = None) -> Digest:
        """Of what replicas share. known: as in `digest_of`."""
        return digest_of(self.shared_states(), known)

    def digest(self, names: Iterable[str] | None = None) -> str:
        """Of all that is tracked, or of these objects: see `Digest`."""
        chosen = sorted(self._objects if names is None else names)
        return digest_of((name, self._compared(name, self._known(name))) for name in chosen).whole

    def _compared(self, name: str, obj: HasState) -> Any:
        """Its state, without what differs in each process."""
        state, grouped = obj.state_dict(), self._in_order(name)
        return state if grouped is None else grouped.by_name(state)

    def _in_order(self, name: str) -> Grouped | None:
        """How its state is in the order of its groups; a shard's is in one of its own."""
        grouped = self._grouped.get(name)
        return None if grouped is None or is_zero(grouped.optimizer) else grouped

    def _known(self, name: str) -> HasState:
        obj = self._objects.get(name)
        if obj is None:
            raise StateMismatch(
                f"The source tracks `{name}`, this process does not.",
                means="This process cannot take the rank: its script tracks other objects.",
                do="Call job.track with the same names wherever the script runs.",
            )
        return obj


def _check_formed(name: str, module: nn.Module) -> None:
    """Raises UserError for a parameter or buffer that only the first forward makes."""
    for path, part in module.named_modules():
        held = tensors_of(part).items()
        lazy = [own for own, one in held if one is not None and is_lazy(one)]
        if lazy:
            where = ".".join(filter(None, (name, path, lazy[0])))
            raise UserError(
                f"`{where}` of a {type(part).__name__} has no shape yet.",
                means="It could not be kept: the first forward makes it.",
                do="Run the model once before job.track, as DistributedDataParallel asks for, too.",
            )


def _gathers(name: str, obj: object) -> UserError:
    return UserError(
        f"`{name}` cannot be tracked: state_dict() of a {type(obj).__name__} makes collectives.",
        means="Its state is read for each step, also where no other rank reads it.",
        do="Leave it out of job.track: what its attributes hold goes along by itself.",
    )


def _is_large(state: object) -> bool:
    structure, tensors = encode.split(state)
    return any(hole.sharded for hole in encode.holes(structure)) or (
        sum(tensor.nbytes for tensor in tensors) > SMALL_BYTES_MAX
    )


def _asked(value: HasState) -> tuple[Callable[[], Any], bool, object]:
    """What gives its state at each step, whether in bytes already, and what is true while there may
    be any."""
    any_is = value.any if isinstance(value, Used | Hooks) else True
    if isinstance(value, Encodes):
        return value.encoded, True, any_is
    return value.state_dict, False, any_is


def _named(name: str, error: UserError) -> UserError:
    return UserError(f"{name}: {error.happened}", means=error.means, do=error.do)


def _structures(header: bytes) -> dict[str, bytes]:
    structures: dict[str, bytes] = _header(header)["objects"]
    return structures


def _is_all(value: object, kind: type) -> bool:
    """Whether it is a dict with nothing but these in it, by name."""
    return type(value) is dict and all(
        type(key) is str and type(entry) is kind for key, entry in value.items()
    )


def _header(header: bytes) -> dict[str, Any]:
    value = encode.decode(header)
    if type(value) is dict and value.keys() == {"objects", "groups"}:
        objects, groups = value["objects"], value["groups"]
        if _is_all(objects, bytes) and _is_all(groups, dict):
            return value
    raise ProtocolError(
        "A header of tracked state is malformed.",
        means="Nothing was taken from it.",
        do="All processes of a job must run the same version of trainmover.",
    )
