# SPDX-License-Identifier: Apache-2.0
"""The numbers that a step reports, as far as they are known when it commits.

Those that `job.report` was given, or else the number that the step returns.
"""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

from torch import Tensor

from trainmover.state import rng
from trainmover.worker.api import number
from trainmover.worker.step.given import LOSS, is_same

NAMES_MAX = 500
NAME_CHARS_MAX = 100
"""What a step reports goes to two machines and into the journal, in each step."""


class Reported:
    """Of one rank's steps.

    values  of the step under way: by `job.report`, or the number that it returns
    code    of the step's function
    own     names of losses that are reported in this try and were computed on the CPU, from nothing
            that a collective may have cut short
    again   an earlier try of this step was aborted
    """

    def __init__(self) -> None:
        self.values: dict[str, float | Tensor] = {}
        self.own = set[str]()
        self.again = False
        self._before: dict[str, float] = {}  # What that one had reported of its own.
        self._drawn = b""  # State of the random numbers at its gate.
        self._function: Callable[..., Any] | None = None
        self.code: object = None
        self._told_of_bounds = False

    def begin(self, function: Callable[..., Any]) -> None:
        """A step is tried."""
        self.values = {}
        self.own.clear()
        if function is not self._function:
            self._function = function
            self.code = code_of(function)

    def has_room(self, name: str) -> bool:
        """Whether a value of that name is kept. Decided from this step alone, so that every process
        which makes the step decides the same."""
        return len(name) <= NAME_CHARS_MAX and (name in self.values or len(self.values) < NAMES_MAX)

    def told_of_bounds(self) -> str:
        """The sentence for the first value that is not kept; "" for later ones."""
        told, self._told_of_bounds = self._told_of_bounds, True
        if told:
            return ""
        return (
            f"job.report() keeps {NAMES_MAX} values of a step, with names of at most "
            f"{NAME_CHARS_MAX} characters; further ones are left out of the job's record, and the "
            "job goes on. Report fewer or shorter names, or write them to a file of your own"
        )

    def abort(self, *, at_gate: bool) -> None:
        """The try is over, and the step is made once more. at_gate: it had come that far"""
        self.again = True
        if at_gate:
            self._drawn = rng.capture()
        self._before |= {name: float(self.values[name]) for name in self.own}

    def committed(self) -> None:
        """The step is."""
        self.again, self._before, self._drawn = False, {}, b""

    def differs(self) -> str:
        """From what an aborted try had reported: what is another, for people; "": nothing."""
        for name, before in self._before.items():
            now = self.values.get(name)
            if now is not None and not is_same(float(now), before):
                return f"it has reported {name} = {float(now)!r} then, and {before!r} before"
        if self._drawn and rng.capture() != self._drawn:
            return "it has drawn other random numbers then"
        return ""

    def numbers(self) -> dict[str, float]:
        """As a row has them."""
        return {
            name: value if type(value) is float else number(name, value)
            for name, value in self.values.items()
        }

    def returned(self, result: Any) -> None:
        """The function has."""
        if not self.values and isinstance(result, Tensor) and result.numel() == 1:
            self.values = {LOSS: result.detach()}


def code_of(function: Callable[..., Any]) -> object:
    """Of what is decorated by others, or a part of whose arguments is given; what is no function of
    Python stands for itself."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    return getattr(function, "__code__", function)


def place_of_step(code: object) -> str:
    """In brackets, with a space before; "" of what is no function of Python."""
    if not isinstance(code, CodeType):
        return ""
    return f" ({Path(code.co_filename).name} line {code.co_firstlineno})"
