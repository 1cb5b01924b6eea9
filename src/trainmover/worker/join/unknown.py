"""What a step has given whose machine is lost: it may be kept and shown, and nothing may follow.

The lines behind a step that is passed over are run by who takes the rank. What that step gave is
known where it was reported; else it is gone. A number in its place, be it NaN, would go into what
the script keeps, or turn a comparison, and nobody would see it.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from trainmover.errors import StateMismatch


def _refuse(*_: object) -> NoReturn:
    raise StateMismatch(
        "The script goes on with a value that its last step has given, which is gone with the "
        "machine that had made it.",
        means="This machine cannot take the rank: it would go on with other numbers.",
        do="Report the number by job.report(...) and return it alone, or work it out in the step "
        "and keep it in what is tracked.",
    )


class UnknownNumber(float):
    """Shown as NaN; to compare it or to calculate with it is an error."""

    __slots__ = ()

    def __new__(cls) -> "UnknownNumber":
        return super().__new__(cls, "nan")

    __hash__ = float.__hash__


_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow")
_OTHERS = ("lt", "le", "gt", "ge", "eq", "ne", "bool", "float", "int", "neg", "pos", "abs", "round")

for _name in (*_OPERATORS, *(f"r{one}" for one in _OPERATORS), *_OTHERS):
    setattr(UnknownNumber, f"__{_name}__", _refuse)


class UnknownTensor(Tensor):
    """Has shape and type; whoever calculates with it, or puts it somewhere, hears of it."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "item":
            return UnknownNumber()
        if name not in _SHOWS:
            _refuse()
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


_SHOWS = frozenset(
    {"__get__", "__repr__", "__format__", "__len__", "size", "dim", "numel", "is_floating_point"}
    | {"is_complex", "element_size", "stride", "storage_offset", "is_contiguous", "nelement"}
    | {"detach", "cpu", "clone", "to", "float", "double", "mean", "sum", "squeeze", "view"}
    | {"__getitem__", "reshape", "flatten", "as_subclass", "requires_grad_", "__hash__", "data_ptr"}
)


def unknown_tensor(like: Tensor) -> UnknownTensor:
    """Of this shape and type, on the CPU."""
    fill = float("nan") if like.is_floating_point() or like.is_complex() else 0
    return torch.full(like.shape, fill, dtype=like.dtype).as_subclass(UnknownTensor)
