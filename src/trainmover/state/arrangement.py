"""What tracked state is beside its values: where it lies in memory, and what of it is shown.

Values travel path by path. Whether two paths are one memory, in which order a tensor lies there,
and whether it asks for gradients, is decided by the script on each machine alike, mostly as it
begins. Where it is decided later (`optimizer.load_state_dict(best)` copies nothing,
`model.to(memory_format=...)` changes the order in which sums are added), another machine with the
same values would go on to other ones. Neither is there anything to compare of a parameter that its
model's state_dict() leaves out.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
import xxhash
from torch import Tensor, nn

from trainmover.errors import StateMismatch
from trainmover.state.items import HasState
from trainmover.state.tensor_bytes import flat_bytes, is_plain
from trainmover.torch_internals.modules import unsaved_of

_DEPTH_MAX = 6
_ELEMENTS_MAX = 4096
_MUTABLE = (list, dict, set, deque, bytearray)
_SAMPLE = 256
_KEEP_COPIES = (
    "Keep copies: optimizer.load_state_dict(copy.deepcopy(state)), since it goes on with the very "
    "tensors that it is given."
)
TRAINED = b""
"""In the place of a hash: it is no use to compare it now."""
Together = list[list[str]]


class Arrangement(NamedTuple):
    """Of all tracked objects. By path: the object's name, and the way in its state.

    memory   tensors and arrays that have memory in common
    objects  lists, dicts and the like that are one object
    strides  of tensors of a module that do not lie in the order of their elements
    asking   what asks for gradients though it is no parameter
    hidden   tensors that are in no state_dict(), with a hash of some elements; `TRAINED`: what
             the script trains
    """

    memory: Together
    objects: Together
    strides: dict[str, list[int]]
    asking: list[str]
    hidden: dict[str, bytes]


def arrangement_of(objects: Iterable[tuple[str, HasState]]) -> Arrangement:
    """Of these, by name."""
    known = list(objects)
    states = [(name, obj, obj.state_dict()) for name, obj in known]
    leaves = [leaf for one in states for leaf in _leaves(*one)]
    within = [
        (f"{name}.{path}", tensor)
        for name, obj in known
        if isinstance(obj, nn.Module)
        for path, tensor in _tensors(obj)
        if is_plain(tensor)
    ]
    strides = {path: list(its.stride()) for path, its in within if not its.is_contiguous()}
    asking = [path for path, its in (*leaves, *within) if _asks(its)]
    hidden = dict(chain.from_iterable(_hidden(*one) for one in states))
    return Arrangement(_in_common(leaves), _objects(leaves), strides, sorted({*asking}), hidden)


def in_common(objects: Iterable[tuple[str, HasState]]) -> Together:
    """Tensors and arrays that have memory in common."""
    return _in_common(
        [leaf for name, obj in objects for leaf in _leaves(name, obj, obj.state_dict())]
    )


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
        means="The script trains it, and another machine could not be given it: this process "
        "cannot take a rank.",
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


def _in_common(leaves: Iterable[tuple[str, object]]) -> Together:
    return _together((path, _address(leaf)) for path, leaf in leaves)


def _objects(leaves: Iterable[tuple[str, object]]) -> Together:
    return _together((path, id(leaf)) for path, leaf in leaves if type(leaf) in _MUTABLE)


def _together(known: Iterable[tuple[str, int]]) -> Together:
    paths: dict[int, set[str]] = {}
    for path, key in known:
        if key:
            paths.setdefault(key, set()).add(path)
    return sorted(sorted(its) for its in paths.values() if len(its) > 1)


def _leaves(name: str, obj: HasState, state: object) -> Iterator[tuple[str, object]]:
    """Tensors, arrays, and what holds them, by path."""
    yield from _walk(name, state, ())
    if isinstance(obj, torch.optim.Optimizer):
        yield f"{name}.state", obj.state
        yield f"{name}.param_groups", obj.param_groups
        yield from ((f"{name}.param_groups.{n}", one) for n, one in enumerate(obj.param_groups))


def _walk(path: str, value: object, around: tuple[int, ...]) -> Iterator[tuple[str, object]]:
    if isinstance(value, Tensor | np.ndarray):
        yield path, value
        return
    if type(value) in _MUTABLE:
        yield path, value
    if id(value) in around or len(around) == _DEPTH_MAX:
        return
    if isinstance(value, Mapping):
        entries: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, list | tuple | deque) and len(value) <= _ELEMENTS_MAX:
        entries = enumerate(value)
    else:
        return
    for key, entry in entries:
        yield from _walk(f"{path}.{key}", entry, (*around, id(value)))


def _address(leaf: object) -> int:
    """0 where nothing lies."""
    while isinstance(leaf, np.ndarray) and isinstance(leaf.base, np.ndarray):
        leaf = leaf.base
    if isinstance(leaf, np.ndarray):
        return leaf.ctypes.data if leaf.size else 0
    if not isinstance(leaf, Tensor) or not is_plain(leaf) or not leaf.numel():
        return 0
    return leaf.untyped_storage().data_ptr()


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _asks(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad and not isinstance(leaf, nn.Parameter)


# --- what is shown --------------------------------------------------------------------------------


def _hidden(name: str, obj: HasState, state: Any) -> Iterator[tuple[str, bytes]]:
    if not isinstance(obj, nn.Module | torch.optim.Optimizer):
        return
    shown = [leaf for _, leaf in _walk(name, state, ()) if isinstance(leaf, Tensor)]
    memory = {*map(_address, shown)}
    held = _of_module(obj) if isinstance(obj, nn.Module) else _of_optimizer(obj)
    for path, tensor in held:
        address = _address(tensor)
        if not address or address in memory or _is_among(tensor, shown):
            continue
        trained = tensor.requires_grad or not isinstance(obj, nn.Module)
        yield f"{name}.{path}", TRAINED if trained else _sampled(tensor)


def _of_module(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    left_out = {
        f"{prefix}.{key}" if prefix else key
        for prefix, part in module.named_modules(remove_duplicate=False)
        for key in unsaved_of(part)
    }
    return ((path, tensor) for path, tensor in _tensors(module) if path not in left_out)


def _of_optimizer(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    held: object = optimizer.state
    states = enumerate(held.values()) if isinstance(held, Mapping) else ()
    for number, of in states:
        for key, one in of.items() if isinstance(of, Mapping) else ():
            if isinstance(one, Tensor):
                yield f"state.{number}.{key}", one


def _is_among(tensor: Tensor, shown: Iterable[Tensor]) -> bool:
    """Whether a copy of it is shown."""
    fits = (one for one in shown if (one.dtype, one.shape) == (tensor.dtype, tensor.shape))
    return any(torch.equal(flat_bytes(one.detach()), flat_bytes(tensor.detach())) for one in fits)


def _sampled(tensor: Tensor) -> bytes:
    """Of elements spread over it: what is not trained changes nowhere, or in many places."""
    flat = tensor.detach().flatten()
    if len(flat) > _SAMPLE:
        flat = flat[torch.linspace(0, len(flat) - 1, _SAMPLE, dtype=torch.float64).long()]
    return xxhash.xxh3_64_digest(flat_bytes(flat).cpu().numpy().tobytes())
