# SPDX-License-Identifier: Apache-2.0
"""What tracked state is beside its values: where it lies in memory, and what of it is shown.

Values travel path by path. Whether two paths are one memory, in which order a tensor lies there,
and whether it asks for gradients, is decided by the script on each machine alike, mostly as it
begins. Where it is decided later (`optimizer.load_state_dict(best)` copies nothing,
`model.to(memory_format=...)` changes the order in which sums are added), another machine with the
same values would go on to other ones. Neither is there anything to compare of a parameter that its
model's state_dict() leaves out.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import xxhash
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from trainmover.errors import StateMismatch
from trainmover.state.encode import as_local
from trainmover.state.items import HasState
from trainmover.state.tensor_bytes import extent_of, flat_bytes, is_plain
from trainmover.torch_internals.modules import unsaved_of

_DEPTH_MAX = 6
_ELEMENTS_MAX = 4096
_MUTABLE = frozenset({list, dict, set, deque, bytearray})
_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})
_SAMPLE = 256
_KEEP_COPIES = (
    "Keep copies: optimizer.load_state_dict(copy.deepcopy(state)), since it goes on with the very "
    "tensors that it is given."
)
TRAINED = b""
"""In the place of a hash: it is no use to compare it now."""
Together = list[list[str]]
Where = tuple[Any, object]
"""A path: what is around, () for nothing, and a key there."""
Placed = tuple[Where, object]


class Arrangement(NamedTuple):
    """Of all tracked objects. By path: the object's name, and the way in its state.

    memory   tensors and arrays that have memory in common
    objects  lists, dicts and the like that are one object
    strides  of tensors of a module that do not lie in the order of their elements: the order of
             their dimensions
    asking   what asks for gradients though it is no parameter
    moved    what of them was not looked into
    hidden   tensors that are in no state_dict(), with a hash of some elements; `TRAINED`: what
             the script trains
    """

    memory: Together
    objects: Together
    strides: dict[str, list[int]]
    asking: list[str]
    hidden: dict[str, bytes]
    moved: list[str]


def arrangement_of(
    objects: Iterable[tuple[str, HasState]],
    beside: Iterable[tuple[str, HasState]] = (),
    moved: Collection[str] = (),
) -> Arrangement:
    """Of these, by name.

    beside  what lies beside them and goes along, by its path
    moved   names and paths of what is not as the record says any more: lines behind it have been
            run. Nobody can tell by it where what lies in it lay
    """
    known = list(objects)
    updated = {
        id(parameter)
        for _, obj in known
        if isinstance(obj, torch.optim.Optimizer)
        for group in obj.param_groups
        for parameter in group["params"]
    }
    memory, containers = _Places(), _Places()
    strides: dict[str, list[int]] = {}
    asking: list[str] = []
    hidden: dict[str, bytes] = {}
    for name, obj in known:
        leaves = _leaves(name, obj)
        if name in moved:
            leaves = [one for one in leaves if not _lies_in_a_value(one[0])]
        shown = [leaf for _, leaf in leaves if isinstance(leaf, Tensor)]
        for where, leaf in leaves:
            if type(leaf) not in _MUTABLE:
                memory.add(_address(leaf), where, leaf)
            elif not isinstance(obj, LRScheduler):  # They set lists anew, and fill none.
                containers.add(id(leaf), where, leaf)
        if isinstance(obj, nn.Module):
            held = [(f"{name}.{path}", tensor) for path, tensor in _tensors(obj)]
            saved = [*_but_unsaved(name, obj, held)]
            strides |= {path: order_of(one) for path, one in saved if not _in_order(one)}
            asking += [path for path, one in held if _asks(one)]
            hidden |= _hidden(saved, shown, updated)
        elif isinstance(obj, torch.optim.Optimizer):
            states = _hidden(_of_optimizer(name, obj), shown, updated)
            hidden |= dict.fromkeys(states, TRAINED)
        else:
            asking += [_path(where) for where, leaf in leaves if _asks(leaf)]
            strides |= _turned(leaves)
    for name, obj in beside:
        leaves = [] if name in moved else _leaves(name, obj)
        _add_all(leaves, memory, containers)
        strides |= _turned(leaves)
    common = memory.together(_overlap)
    one = sorted(containers.together())
    return Arrangement(common, one, strides, sorted(asking), hidden, sorted(moved))


def _add_all(leaves: list[Placed], memory: "_Places", containers: "_Places") -> None:
    for where, leaf in leaves:
        if type(leaf) in _MUTABLE:
            containers.add(id(leaf), where, leaf)
        else:
            memory.add(_address(leaf), where, leaf)


def _turned(leaves: list[Placed]) -> dict[str, list[int]]:
    """Of tensors whose dimensions lie in another order than they are counted in."""
    turned = {
        _path(where): order_of(leaf)
        for where, leaf in leaves
        if isinstance(leaf, Tensor) and not _in_order(leaf)
    }
    return {path: order for path, order in turned.items() if order != sorted(order)}


def _lies_in_a_value(where: Where) -> bool:
    around, _ = where
    return bool(around and around[0])


def in_common(objects: Iterable[tuple[str, HasState]]) -> Together:
    """Tensors and arrays that have memory in common, and containers that are one."""
    memory, containers = _Places(), _Places()
    for name, obj in objects:
        is_schedule = isinstance(obj, LRScheduler)
        _add_all(_leaves(name, obj), memory, _Places() if is_schedule else containers)
    return [*memory.together(_overlap), *containers.together()]


def parted(then: Together, now: Together) -> str:
    """What had memory in common then and has not now, in words; "": nothing."""
    missing = [paths for paths in then if paths not in now]
    return f"`{missing[0][0]}` and `{missing[0][1]}` have memory in common" if missing else ""


def check(theirs: Arrangement, mine: Arrangement, first: Arrangement) -> None:
    """Raises StateMismatch if the rank whose values this process has taken had them arranged
    otherwise. first: here, before any were taken; a list that was one from the start is two then"""
    if why := parted(theirs.memory, mine.memory):
        raise _otherwise(f"{why} on the rank, and have not here", "show in the other", _KEEP_COPIES)
    if why := parted(mine.memory, theirs.memory):
        raise _otherwise(f"{why} here, and have not on the rank", "stay in one", _KEEP_COPIES)
    others = [paths for paths in theirs.objects if paths not in (*mine.objects, *first.objects)]
    if others:
        one, other, *_ = others[0]
        raise _otherwise(
            f"`{one}` and `{other}` are one object on the rank, and two here",
            "show in the other",
            "Give each an object of its own, or both the same one before the first step.",
        )
    _check_lies(theirs, mine)
    _check_shown(theirs, mine)


def hides_trained(mine: Arrangement) -> str:
    """A path that the script trains, and that no state_dict() shows; "": there is none."""
    return next((path for path, known in mine.hidden.items() if known == TRAINED), "")


def not_shown(path: str) -> StateMismatch:
    """To raise."""
    return StateMismatch(
        f"`{path}` is in no state_dict() as it is.",
        means="The script trains or changes it, and another machine could not be given it: this "
        "process cannot take a rank.",
        do="Let state_dict() give the tensor itself, and leave out what a checkpoint need not have "
        "where it is written.",
    )


def _check_lies(theirs: Arrangement, mine: Arrangement) -> None:
    for path in sorted(theirs.strides.keys() | mine.strides.keys()):
        if theirs.strides.get(path) != mine.strides.get(path):
            raise StateMismatch(
                f"The elements of `{path}` lie in another order in memory here than on the rank.",
                means="Sums would be added in another order: this process cannot take the rank.",
                do="Choose the memory format of a model before job.track(...).",
            )
    if unlike := {*theirs.asking} ^ {*mine.asking}:
        raise StateMismatch(
            f"`{min(unlike)}` asks for gradients on the rank or here, and not on both.",
            means="Steps would give other gradients: this process cannot take the rank.",
            do="Say so with requires_grad_() before the first step, or keep .detach() of it.",
        )


def _check_shown(theirs: Arrangement, mine: Arrangement) -> None:
    if path := hides_trained(theirs):
        raise not_shown(path)
    for path, known in theirs.hidden.items():
        if path in mine.hidden and mine.hidden[path] != known:
            raise not_shown(path)


def _otherwise(happened: str, would: str, do: str) -> StateMismatch:
    return StateMismatch(
        f"{happened}.",
        means=f"What steps write to one would not {would}, as it does there: this process cannot "
        "take the rank.",
        do=do,
    )


# --- what lies where ------------------------------------------------------------------------------


class _Places:
    """What lies at which address. It holds all that: no address is to be used again meanwhile."""

    def __init__(self) -> None:
        self._first: dict[int, Placed] = {}
        self._several: dict[int, list[Placed]] = {}

    def add(self, address: int, where: Where, leaf: object) -> None:
        """address: 0: it lies nowhere"""
        one = where, leaf
        first = self._first.setdefault(address, one) if address else one
        if first is not one:
            self._several.setdefault(address, [first]).append(one)

    def together(
        self, parted: Callable[[list[Placed]], list[list[Placed]]] = lambda one: [one]
    ) -> Together:
        """Paths of what lies at one, where there are several. parted: what lies there beside each
        other"""
        every = (group for its in self._several.values() for group in parted(its))
        paths = (sorted({_path(where) for where, _ in group}) for group in every)
        return sorted(its for its in paths if len(its) > 1)


def _overlap(placed: list[Placed]) -> list[list[Placed]]:
    """Of one piece of memory: those that lie over each other."""
    found: list[list[Placed]] = []
    over = -1
    for start, end, one in sorted(((*_extent(p[1]), p) for p in placed), key=lambda its: its[:2]):
        if start >= over:
            found.append([])
        found[-1].append(one)
        over = max(over, end)
    return found


def _extent(leaf: object) -> tuple[int, int]:
    extent = extent_of(leaf) if isinstance(leaf, Tensor) else None
    at = _address(leaf)
    return extent or (at, at + 1)


def _path(where: Where) -> str:
    around, key = where
    return f"{_path(around)}.{key}" if around else str(key)


def _leaves(name: str, obj: HasState) -> list[tuple[Where, object]]:
    """Tensors, arrays, and what holds them."""
    found: list[tuple[Where, object]] = []
    _walk(((), name), obj.state_dict(), found, ())
    if isinstance(obj, torch.optim.Optimizer):
        state, groups = (((), name), "state"), (((), name), "param_groups")
        found += [(state, getattr(obj, "state", None)), (groups, obj.param_groups)]
        found += [((groups, number), group) for number, group in enumerate(obj.param_groups)]
    return found


def _walk(
    where: Where, value: object, found: list[tuple[Where, object]], around: tuple[int, ...]
) -> None:
    kind = type(value)
    if kind in _PLAIN:
        return
    if isinstance(value, Tensor | np.ndarray):
        found.append((where, value))
        return
    if kind in _MUTABLE:
        found.append((where, value))
    if id(value) in around or len(around) == _DEPTH_MAX:
        return
    if isinstance(value, Mapping):
        entries: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, list | tuple | deque) and len(value) <= _ELEMENTS_MAX:
        entries = enumerate(value)
    else:
        return
    inside = (*around, id(value))
    for key, entry in entries:
        _walk((where, key), entry, found, inside)


def _address(leaf: object) -> int:
    """Of the memory that it lies in; 0: there is none."""
    if isinstance(leaf, Tensor):
        try:
            return leaf.untyped_storage().data_ptr() if leaf.numel() else 0
        except (NotImplementedError, RuntimeError):  # As of a sparse one, which has several.
            return 0
    while isinstance(leaf, np.ndarray) and isinstance(leaf.base, np.ndarray):
        leaf = leaf.base
    return leaf.ctypes.data if isinstance(leaf, np.ndarray) and leaf.size else 0


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def order_of(tensor: Tensor) -> list[int]:
    """In which its dimensions lie in memory, the outermost first."""
    steps = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda dim: -steps[dim])


def _in_order(tensor: Tensor) -> bool:
    return tensor.layout != torch.strided or tensor.is_contiguous()


def _asks(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad and not isinstance(leaf, nn.Parameter)


# --- what is shown --------------------------------------------------------------------------------


def _hidden(
    held: Iterable[tuple[str, Tensor]], shown: Sequence[Tensor], updated: Collection[int]
) -> dict[str, bytes]:
    """By path, what is not among these. updated: ids of what optimizers have"""
    known = {*map(_begins_at, shown)}
    return {
        path: TRAINED if id(one) in updated or one.grad is not None else _sampled(as_local(one))
        for path, one in held
        if (at := _begins_at(one)) and at not in known and not _is_among(as_local(one), shown)
    }


def _begins_at(tensor: Tensor) -> int:
    """0 where nobody can tell, or nothing lies."""
    try:
        return tensor.data_ptr()
    except (NotImplementedError, RuntimeError):
        pass  # As of a sparse one, or of one that wraps another.
    local = as_local(tensor)
    return local.data_ptr() if is_plain(local) else 0


def _but_unsaved(
    name: str, module: nn.Module, held: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[str, Tensor]]:
    """Without what is in no state_dict() by torch's own rules."""
    parts = module.named_modules(remove_duplicate=False)
    unsaved = {
        ".".join(filter(None, (name, prefix, key)))
        for prefix, part in parts
        for key in unsaved_of(part)
    }
    return (one for one in held if one[0] not in unsaved)


def _of_optimizer(name: str, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    held: object = getattr(optimizer, "state", None)
    states = enumerate(held.values()) if isinstance(held, Mapping) else ()
    for number, of in states:
        for key, one in of.items() if isinstance(of, Mapping) else ():
            if isinstance(one, Tensor):
                yield f"{name}.state.{number}.{key}", one


def _is_among(tensor: Tensor, shown: Iterable[Tensor]) -> bool:
    """Whether a copy of it is shown."""
    fits = (one for one in shown if (one.dtype, one.shape) == (tensor.dtype, tensor.shape))
    own = flat_bytes(tensor).cpu()
    return any(is_plain(one) and torch.equal(flat_bytes(one).cpu(), own) for one in fits)


def _sampled(tensor: Tensor) -> bytes:
    """Of elements spread over it: what is not trained changes nowhere, or in many places."""
    flat = tensor.detach().flatten()
    if len(flat) > _SAMPLE:
        flat = flat[torch.linspace(0, len(flat) - 1, _SAMPLE, dtype=torch.float64).long()]
    return xxhash.xxh3_64_digest(flat_bytes(flat).cpu().numpy().tobytes())
