# SPDX-License-Identifier: Apache-2.0
"""Modules, optimizers, schedulers, scalers and lone parameters that a script trains with and has
not tracked: no other machine has what they have come to.

What stays as it was made (a frozen teacher, a loss with weights) is the same everywhere and counts
for nothing. So the content is hashed, and hashed again where torch has written to it; what is
written past torch's counters shows in a few elements that are read each time, in host memory.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch
import xxhash
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.weak import WeakIdKeyDictionary

from trainmover.state import tensor_bytes
from trainmover.state.encode import as_local
from trainmover.state.kinds.generators import KeptGenerator
from trainmover.state.kinds.optimizers.zero import shard_of
from trainmover.state.kinds.values import Attributes
from trainmover.state.script.things.libraries import kept_in
from trainmover.state.script.things.views import Views
from trainmover.torch_internals import scripted
from trainmover.torch_internals.modules import parts_of, tensors_of
from trainmover.torch_internals.tensors import version_of

SMALL_BYTES = 16 * 1024
"""A tensor that is no larger is hashed each time; of others so many elements are looked at."""
_SAMPLE = 64
_SETTINGS = (LRScheduler, ReduceLROnPlateau, GradScaler)
_MODAL = (
    *(
        nn.Dropout,
        nn.Dropout1d,
        nn.Dropout2d,
        nn.Dropout3d,
        nn.AlphaDropout,
        nn.FeatureAlphaDropout,
    ),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.RReLU),
)
"""Layers that do something else while they are trained."""
TRAINED = (nn.Module, torch.optim.Optimizer, *_SETTINGS)
Mark = tuple[int, int]


def _NOBODY() -> Any: ...


def _reference_to(tracked: object) -> Callable[[], Any]:
    """A weak one. One with slots may not be referred to so, and lives as long as it is tracked."""
    try:
        return weakref.ref(tracked)
    except TypeError:
        return lambda: tracked


class Untracked:
    """Beside what was tracked when this was made.

    names  of what is tracked, or has attributes that are, by its id; and the object itself
    kept   names of the attributes that are, by the id of what has them
    """

    def __init__(
        self, tracked: Iterable[tuple[str, object]] = (), views: Views | None = None
    ) -> None:
        self._views = views or Views()
        tracked = list(tracked)
        self.names: dict[int, tuple[str, Callable[[], Any]]] = {}
        for name, obj in tracked:
            for path, one in _all_of(name, obj):
                self.names.setdefault(id(one), (path, _reference_to(one)))
        for name, obj in tracked:  # Beside what is tracked whole.
            if isinstance(obj, Attributes | KeptGenerator):
                whole = obj.owner if isinstance(obj, Attributes) else obj.generator
                self.names.setdefault(id(whole), (name, _reference_to(whole)))
        self.kept: dict[int, set[str]] = {}
        for _, obj in tracked:
            if isinstance(obj, Attributes):
                self.kept.setdefault(id(obj.owner), set()).update(obj.names)
        self._inside = {
            id(one): (_reference_to(one), _reference_to(obj))
            for _, obj in tracked
            if isinstance(obj, torch.optim.Optimizer)
            for one in vars(obj).values()
            if isinstance(one, torch.optim.Optimizer) and id(one) not in self.names
        }
        self._with_outer: set[int] = set()
        self._hashes: dict[int, tuple[weakref.ref[Tensor], Mark, bytes]] = {}
        self._found: dict[int, tuple[weakref.ref[Any], bool]] = {}
        self._kept = WeakIdKeyDictionary()  # A module may be hashed by what it holds.

    def name_of(self, value: object) -> str:
        """By which a module or another object is tracked, or one that it wraps; "" if it is not."""
        if own := self.own_name(value):
            return own
        parts: Iterable[object] = ()
        if issubclass(type(value), nn.Module):
            parts = _parts(value)
        elif issubclass(type(value), torch.optim.Optimizer):
            parts = vars(value).values()  # One that shards has the tracked one inside.
        return next((name for part in parts if (name := self.own_name(part))), "")

    def has(self, value: object) -> bool:
        """Whether there is anything in it that counts and that nobody tracks."""
        kind = type(value)
        if not issubclass(kind, (*TRAINED, nn.Parameter)):
            return False
        known = self._found.get(id(value))
        if known is None or known[0]() is not value:
            known = self._found[id(value)] = weakref.ref(value), self._has(value)
        return known[1]

    def folded(self, value: object, inside: Callable[[object], Any]) -> Any:
        """What stands for that content; None if there is none."""
        if not self.has(value):
            return None
        if self._goes_along(value):
            return []
        digest = xxhash.xxh3_64()
        for tensor in self.tensors(value):
            digest.update(self._digest(tensor))
        kind, plain = type(value), list[Any]()
        if issubclass(kind, nn.Module):
            kept = (self._kept_in(part) for part in _parts(value))
            plain = [_settings(one) for one in kept if one]
            plain.append({"training": [part.training for part in self._others_in(value)]})
        elif issubclass(kind, torch.optim.Optimizer):
            groups = [] if self.name_of(value) else value.param_groups  # type: ignore[attr-defined]
            plain = [self._group(group) for group in groups]  # Of one around it they are its own.
        elif issubclass(kind, _SETTINGS):
            plain = [_settings(vars(value))]
        return [digest.digest(), inside(plain)]

    def tensors(self, value: object) -> Iterator[Tensor]:
        """Of its tensors those that nobody tracks; not those that the first forward makes."""
        kind = type(value)
        if issubclass(kind, nn.Parameter):
            yield from () if is_lazy(value) else (value,)  # type: ignore[misc, arg-type]
        elif issubclass(kind, nn.Module):
            for part in _parts(value):
                if not self.own_name(part):
                    held = [*tensors_of(part).values(), *_tensors_in(self._kept_in(part))]
                    known = (one for one in held if one is not None and not is_lazy(one))
                    yield from (one for one in known if not self._shows(one))
        elif issubclass(kind, torch.optim.Optimizer):
            yield from self._trained_by(value)  # type: ignore[arg-type]
            states = () if self.own_name(value) else list(value.state.values())  # type: ignore[attr-defined]
            for state in states:
                entries = state.values() if isinstance(state, dict) else ()
                yield from (one for one in entries if isinstance(one, Tensor))
        elif issubclass(kind, GradScaler):
            yield from (one for one in vars(value).values() if isinstance(one, Tensor))

    def _group(self, group: dict[str, Any]) -> dict[str, Any]:
        """What it is set to, a rate that is a tensor too, and which parameters it trains."""
        rates = {name: one for name, one in group.items() if type(one) is Tensor}
        whole = (one for one in group["params"] if not is_lazy(one))
        which = [self._views.shown_by(as_local(one)) or [] for one in whole]
        return {**_settings(group), **rates, "params": which}

    def _trained_by(self, optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
        """Parameters that it has, and no module that is tracked: no `state_dict()` has them. Shards
        are of a module that may show them whole at the moment."""
        for group in optimizer.param_groups:
            whole = (one for one in group["params"] if not hasattr(one, "to_local"))
            yield from (one for one in whole if not is_lazy(one) and not self._shows(one))

    def _kept_in(self, part: nn.Module) -> dict[str, Any]:
        """What a metric of a library keeps in plain attributes, and what compiled code changes;
        mostly nothing."""
        if part not in self._kept:
            self._kept[part] = sorted({*kept_in(part), *scripted.changed_in(part)})
        if scripted.is_one(part):
            return {name: getattr(part, name) for name in self._kept[part]}
        return {name: vars(part).get(name) for name in self._kept[part]}

    def _has(self, value: object) -> bool:
        if issubclass(type(value), nn.Module):
            held = (one for part in _parts(value) for one in tensors_of(part).values())
            lazy = any(one is not None and is_lazy(one) for one in held)
            modal = any(issubclass(type(part), _MODAL) for part in self._others_in(value))
            if lazy or modal or self._counts(value):
                return True
            return next(self.tensors(value), None) is not None
        if issubclass(type(value), nn.Parameter):
            return is_lazy(value) or not self._shows(value)  # type: ignore[arg-type]
        if issubclass(type(value), torch.optim.Optimizer):
            if next(self._trained_by(value), None) is not None:  # type: ignore[arg-type]
                return True
            if self.own_name(value):
                return False
            wrapped = [one for one in vars(value).values() if self.own_name(one)]
            return not any(_is_part(one, value) for one in wrapped)  # type: ignore[arg-type]
        return not self.name_of(value)

    def _counts(self, value: object) -> bool:
        """Whether compiled code of it changes attributes."""
        return any(scripted.changed_in(part) for part in self._others_in(value))

    def _others_in(self, value: object) -> Iterator[nn.Module]:
        """Of its parts those that nobody tracks."""
        return (part for part in _parts(value) if not self.own_name(part))

    def _goes_along(self, value: object) -> bool:
        """Whether it is inside of a tracked optimizer whose `state_dict()` has all of its state."""
        reference, around = self._inside.get(id(value), (_NOBODY, _NOBODY))
        one, outer = reference(), around()
        if one is None or id(one) != id(value) or outer is None:
            return False
        if id(value) not in self._with_outer and one.param_groups is outer.param_groups:
            held = set(map(id, _tensors_in(outer.state_dict())))
            if (own := list(self.tensors(value))) and held.issuperset(map(id, own)):
                self._with_outer.add(id(value))
        return id(value) in self._with_outer

    def own_name(self, value: object) -> str:
        """By which it is tracked itself, or attributes of it are kept; "" if it is not."""
        name, reference = self.names.get(id(value), ("", None))
        return name if reference is not None and reference() is value else ""

    def _shows(self, tensor: Tensor) -> bool:
        local = as_local(tensor)
        return not tensor_bytes.is_plain(local) or self._views.shown_by(local) is not None

    def _digest(self, tensor: Tensor) -> bytes:
        local = as_local(tensor)
        if not tensor_bytes.is_plain(local) or not local.nbytes:
            return b""
        if local.nbytes <= SMALL_BYTES and local.is_cpu:
            return xxhash.xxh3_64_digest(tensor_bytes.view_bytes(local))
        mark = _mark(local)
        known = self._hashes.get(id(tensor))
        if known is None or known[0]() is not tensor or known[1] != mark:
            whole = xxhash.xxh3_64_digest(tensor_bytes.view_bytes(local))
            known = self._hashes[id(tensor)] = weakref.ref(tensor), mark, whole
        return known[2] + (_sample(local) if local.is_cpu else b"")


def _all_of(name: str, obj: object) -> Iterator[tuple[str, Any]]:
    """It, all modules in it, and the optimizer in one that shards; of an object that is none of
    torch's what it has of such: its state is that one's."""
    yield name, obj
    if isinstance(obj, nn.Module):
        for path, part in obj.named_modules():
            yield f"{name}.{path}", part
    if isinstance(obj, torch.optim.Optimizer):
        yield from ((name, one) for one in vars(obj).values() if _is_part(one, obj))
    if not isinstance(obj, TRAINED) and hasattr(type(obj), "state_dict"):
        for one in getattr(obj, "__dict__", {}).values():
            if isinstance(one, TRAINED):
                yield from _all_of(name, one)


def _is_part(one: object, outer: torch.optim.Optimizer) -> bool:
    """Whether it is an optimizer whose state is the outer one's: what else an optimizer wraps may
    have a state that the outer one's `state_dict()` has not, as the momentum inside of SAM."""
    if not isinstance(one, torch.optim.Optimizer):
        return False
    return one is shard_of(outer) or one.state is outer.state


def _tensors_in(state: object) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for one in state.values() if isinstance(state, dict) else state:
            yield from _tensors_in(one)


def _parts(value: Any) -> Iterator[nn.Module]:
    """It and all modules in it, each once, whatever its own methods say."""
    seen, found = set[int](), [value]
    while found:
        one = found.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        found += parts_of(one).values()


def _mark(tensor: Tensor) -> Mark:
    try:
        return version_of(tensor), tensor.data_ptr()
    except RuntimeError:  # Made in inference mode: it has no counter.
        return -1, tensor.data_ptr()


def _sample(tensor: Tensor) -> bytes:
    if not tensor.is_contiguous():
        return b""
    flat = tensor.detach().reshape(-1)
    return tensor_bytes.view_bytes(flat[:: -(-flat.numel() // _SAMPLE)]).tobytes()


def _settings(held: dict[str, Any]) -> dict[str, Any]:
    """What is set to numbers and lists of such."""
    return {name: one for name, one in held.items() if _is_plain(one)}


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, int | float | str | numpy.number | None)
