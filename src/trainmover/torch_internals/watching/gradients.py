# SPDX-License-Identifier: Apache-2.0
"""Gradients of an earlier step, of which it is told when the script reads them.

No counter of torch's says that a tensor was read. A tensor may get another class while others hold
it: then functions called with it come by here, and what is written in C, as a backward pass, does
not. Whoever asks for shape or type has read nothing; who fills it with something else, as
`optimizer.zero_grad(set_to_none=False)` does, ends the watch.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

_FILLS = frozenset({"zero_", "fill_", "copy_", "_foreach_zero_", "_foreach_copy_"})
"""What leaves nothing of what their first argument was."""
_SAME = frozenset(
    {"detach", "detach_", "requires_grad_", "as_subclass", "view", "view_as", "alias"}
)
"""What gives the values on: they are read by who reads those."""
_FORM = frozenset(
    {"__get__", "__set__", "__len__", "__hash__", "size", "dim", "numel", "nelement", "stride"}
    | {"element_size", "is_floating_point", "is_complex", "is_contiguous", "storage_offset", "type"}
    | {"get_device", "data_ptr", "is_same_size", "is_set_to", "register_hook", "ndimension"}
)
_AS_TENSORS = frozenset({"__repr__", "__format__", "__reduce_ex__", "__deepcopy__"})
"""What tells of the class, to people or files."""
_NESTED_MAX = 2


class Watched(Tensor):
    """One whose values are those of an earlier step as long as its version is that of then."""

    on_read: Callable[[], None]
    since: int

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = func.__name__
        watched = [*_watched_in((args, kwargs))]
        if name in _FILLS:
            for one in _watched_in(args[:1]):
                end(one)
        elif name not in _FORM and name not in _SAME:
            _are_read(watched)
        if name in _AS_TENSORS:
            args = (plain(args[0]), *args[1:])
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs or {})
        if isinstance(result, Tensor) and watched and name in {*_SAME, "__get__"}:
            _goes_on(watched[0], result)
        return result


def watch(tensor: Tensor, on_read: Callable[[], None]) -> None:
    """From here on `on_read` is called before somebody reads it; what that raises, the reader
    gets. A sparse tensor, or one of another class than torch's own, is left alone."""
    if type(tensor) is Tensor and tensor.layout == torch.strided:
        tensor.__class__ = Watched
        tensor.on_read, tensor.since = on_read, _version_of(tensor)  # type: ignore[attr-defined]


def end(tensor: Tensor | None) -> None:
    """It is a tensor like any other."""
    if type(tensor) is Watched:
        tensor.__class__ = Tensor  # type: ignore[assignment]
        del tensor.on_read, tensor.since


def plain(tensor: Tensor) -> Tensor:
    """Its values, for who reads them unseen."""
    if type(tensor) is not Watched:
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(Tensor)


def _version_of(tensor: Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor._version


def _are_read(tensors: list[Watched]) -> None:
    for one in tensors:
        if type(one) is Watched and _version_of(one) == one.since:
            one.on_read()


def _goes_on(watched: Watched, result: Tensor) -> None:
    if type(watched) is Watched and result is not watched:
        watch(result, watched.on_read)


def _watched_in(values: Any, depth: int = 0) -> Iterator[Watched]:
    if type(values) is Watched:
        yield values
    elif isinstance(values, list | tuple | dict) and depth <= _NESTED_MAX:
        for one in values.values() if isinstance(values, dict) else values:
            yield from _watched_in(one, depth + 1)
