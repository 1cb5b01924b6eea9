# SPDX-License-Identifier: Apache-2.0
"""In place of what is gone with a machine, and seems to be written before it is read.

Such a variable is compared by nobody. Who takes the rank has in it what its own way there has left:
if the source was read wrong, the script would go on with that, and nobody would see it. So it is
put away, as far as it is a value; to use what stands there instead is an error.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

import numpy
from torch import Tensor

from trainmover.errors import StateMismatch
from trainmover.state.script.values import PLAIN

_LOOKED_AT_MAX = 64
_SINGLE = PLAIN | {Tensor, numpy.ndarray}
_FILLS = frozenset({"clear", "fill", "fill_", "zero_"})
_CONTAINERS = frozenset({list, tuple, set, frozenset, deque, dict})


class Away:
    """It may be stored, copied and dropped, and emptied or filled as a whole; all else, to send or
    save it too, raises StateMismatch.

    said     what it was, with file and line
    restore  puts what stood there back in its place, and gives it: to be emptied or filled
    """

    __slots__ = ("restore", "said")

    def __init__(self, said: str, restore: Callable[[], Any] | None = None) -> None:
        self.said, self.restore = said, restore

    def __copy__(self) -> "Away":
        return self

    def __deepcopy__(self, _: object) -> "Away":
        return self

    @classmethod
    def __torch_function__(cls, _: object, __: object, args: Any = (), kwargs: Any = None) -> None:
        every = [*args, *(kwargs or {}).values()]
        every += [one for held in every if isinstance(held, list | tuple) for one in held]
        _refuse(next(one for one in every if type(one) is cls))

    def __reduce_ex__(self, _: object) -> NoReturn:
        _refuse(self)

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        if name not in _FILLS or self.restore is None:
            _refuse(self)
        return getattr(self.restore(), name)

    def __setitem__(self, place: Any, value: Any) -> None:
        if not _is_all(place) or self.restore is None:
            _refuse(self)
        self.restore()[place] = value

    def __delitem__(self, place: Any) -> None:
        if not _is_all(place) or self.restore is None:
            _refuse(self)
        del self.restore()[place]


def _refuse(self: Away, *_: object, **__: object) -> NoReturn:
    if self.restore is not None:
        raise StateMismatch(
            f"The script reads {self.said}, which its last step had changed, and that is gone with "
            "the machine that had made it.",
            means="This machine cannot go on as the rank: it would go on with another value.",
            do="Return it from the step, or report it, or work with it in the step.",
        )
    raise StateMismatch(
        f"The script reads {self.said}, which is gone with the machine that had made it: its "
        "source looks as if every step wrote it before it reads it.",
        means="This machine cannot go on as the rank: it would go on with another value.",
        do='Keep it with job.values(the object, "its name"), or write it in each step before it is '
        "read.",
    )


_CALCULATES = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul")
_BITS = ("and", "or", "xor", "lshift", "rshift")
_SHOWS = ("str", "repr", "format", "bool", "float", "int", "complex", "index", "hash", "array")
_COMPARES = ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "round", "invert")
_HOLDS = ("len", "iter", "next", "contains", "getitem", "reversed")
_ACTS = ("call", "enter")

for _name in (*_CALCULATES, *_BITS):
    setattr(Away, f"__{_name}__", _refuse)
    setattr(Away, f"__r{_name}__", _refuse)
for _name in (*_SHOWS, *_COMPARES, *_HOLDS, *_ACTS):
    setattr(Away, f"__{_name}__", _refuse)


def _is_all(place: object) -> bool:
    return place is Ellipsis or place == slice(None)


def is_value(value: object) -> bool:
    """Whether it may be put away: whoever drops it ends nothing that it keeps alive."""
    kind = type(value)
    if kind not in _CONTAINERS:
        return kind in _SINGLE or issubclass(kind, numpy.generic)
    held: Any = value.values() if isinstance(value, dict) else value
    return len(held) <= _LOOKED_AT_MAX and all(type(one) in _SINGLE for one in held)
