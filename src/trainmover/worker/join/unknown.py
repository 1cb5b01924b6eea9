# SPDX-License-Identifier: Apache-2.0
"""What a step has given whose machine is lost, or lines before it have made of state that it has
changed: it may be kept and shown, and nothing may follow.

The lines behind a step that is passed over are run by who takes the rank. What that step gave is
known where it was reported; else it is gone. A number in its place, be it NaN, would go into what
the script keeps, or turn a comparison, and nobody would see it.
"""

import math
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from trainmover.errors import StateMismatch

_GIVEN = (
    "The script goes on with a value that its last step has given, which is gone with the "
    "machine that had made it.",
    "Report the number by job.report(...) and return it alone, or work it out in the step "
    "and keep it in what is tracked.",
)
_MADE_BEFORE = (
    "The script goes on with a value that lines before or behind its last step have made of what "
    "is tracked, as it was then: it is gone with the machine that had made it.",
    "Work it out in the step, and report it by job.report(...) or keep it in what is tracked.",
)

WRITTEN = (
    "The script goes on with a batch that its last step has written to: what it had made of it is "
    "gone with the machine.",
    "Let the step write to a copy (`x = x - x.mean()` in place of `x -= x.mean()`), or return what "
    "the lines behind it need.",
)


class Refused:
    """What a script may have caught, and gone on. since: the way began that is gone now"""

    since = False


def refuse(why: tuple[str, str] = _MADE_BEFORE) -> NoReturn:
    """Something is to follow. Raises StateMismatch."""
    Refused.since = True
    happened, do = why
    raise StateMismatch(
        happened,
        means="This machine cannot take the rank: it would go on with other numbers.",
        do=do,
    )


class UnknownNumber:
    """Shown as NaN; to compare it or to calculate with it is an error. It is no float: what is
    written in C would take that for a number."""

    why = _GIVEN

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        refuse(cls.why)

    def __repr__(self) -> str:
        return "nan"

    def __format__(self, spec: str) -> str:
        try:
            return format(math.nan, spec)
        except ValueError:  # Of a whole number, or of a text.
            return "nan"


class NumberOfBefore(UnknownNumber):
    """One that lines before the step have made. spreads: what is calculated with it is one, too, as
    long as the way goes on to where all that lives on is compared, or stands for nothing."""

    why = _MADE_BEFORE
    spreads = False


_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow")
_OF_ONE = ("neg", "pos", "abs")
_TELL = ("lt", "le", "gt", "ge", "eq", "ne", "bool", "float", "int", "index", "round", "hash")


def _refuse_number(number: UnknownNumber, *_: object) -> NoReturn:
    refuse(number.why)


def _calculated(number: NumberOfBefore, *_: object) -> NumberOfBefore:
    return NumberOfBefore() if NumberOfBefore.spreads else refuse(number.why)


for _name in (*_OPERATORS, *(f"r{one}" for one in _OPERATORS), *_OF_ONE):
    setattr(UnknownNumber, f"__{_name}__", _refuse_number)
    setattr(NumberOfBefore, f"__{_name}__", _calculated)
for _name in _TELL:
    setattr(UnknownNumber, f"__{_name}__", _refuse_number)


class UnknownTensor(Tensor):
    """Has shape and type; whoever calculates with it, or puts it somewhere, hears of it."""

    why = _GIVEN
    number: type[UnknownNumber] = UnknownNumber

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "item":
            return cls.number()
        if name not in _SHOWS:
            refuse(cls.why)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


class TensorOfBefore(UnknownTensor):
    """One that lines before the step have made. Who fills it anew may go on with it."""

    why = _MADE_BEFORE
    number: type[UnknownNumber] = NumberOfBefore
    was: type[Tensor] = Tensor

    @classmethod
    def take_place_of(cls, tensor: Tensor) -> None:
        """The very object, whoever holds it."""
        kind, tensor.__class__ = type(tensor), cls
        vars(tensor)["was"] = kind

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        unknown = [one for one in args if isinstance(one, cls)]
        name = getattr(func, "__name__", "")
        if name in SHOWN:
            return SHOWN[name]
        if name in FILLS and len(unknown) == 1 and unknown[0] is args[0]:
            unknown[0].__class__ = unknown[0].was
            return func(*args, **kwargs or {})
        return super().__torch_function__(func, types, args, kwargs)


SHOWN = {"__repr__": "tensor(nan)", "__format__": "nan"}
FILLS = frozenset(
    {"copy_", "zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
)
"""What leaves nothing of what a tensor was."""
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
