# SPDX-License-Identifier: Apache-2.0
"""The numbers that a step reports, as far as they are known when it commits.

Those that `job.report` was given are. A script that returns its loss instead is asked for it too
late: the step has committed, and if the rank is lost now its row is written without. So the gate
looks for the number where the script has it already, in a variable of the step's function or of
what that has called: in the first steps the returned tensor shows which variable that is. A step
whose result is made behind the gate (an average over all ranks, say) commits at its return.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torch import Tensor

from trainmover.state import rng
from trainmover.worker.api import number
from trainmover.worker.step.results.given import LOSS, is_same

Place = tuple[CodeType, str]
"""A variable of a function."""

LOOKS_MAX = 8
"""Steps in which the returned number is looked for among the variables."""


NAMES_MAX = 500
NAME_CHARS_MAX = 100
"""What a step reports goes to two machines and into the journal, in each step."""


class Reported:
    """Of one rank's steps.

    values  of the step under way: by `job.report`, or the number that it returns
    code    of the step's function
    late    the newest step has given a number that its gate did not have
    own     names of losses that are reported in this try and were computed on the CPU, from nothing
            that a collective may have cut short
    again   an earlier try of this step was aborted
    """

    def __init__(self) -> None:
        self.values: dict[str, float | Tensor] = {}
        self.late = False
        self.own = set[str]()
        self.again = False
        self._before: dict[str, float] = {}  # What that one had reported of its own.
        self._drawn = b""  # State of the random numbers at its gate.
        self._function: Callable[..., Any] | None = None
        self.code: object = None
        self._place: Place | None = None
        self._looks = 0
        self._seen: dict[int, Place] = {}
        self._found = False  # The number in `values` is from a variable.
        self._told_of_bounds = False

    def begin(self, function: Callable[..., Any]) -> None:
        """A step is tried."""
        self.values, self.late, self._seen, self._found = {}, False, {}, False
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

    def at_gate(self) -> dict[str, float]:
        """The step commits now: its numbers, for good. Raises UserError for one that is none."""
        if not self.values:
            self._look_for_result()
        numbers = self.numbers()
        self.values = dict(numbers)
        return numbers

    def numbers(self) -> dict[str, float]:
        """As a row has them."""
        return {
            name: value if type(value) is float else number(name, value)
            for name, value in self.values.items()
        }

    def returned(self, result: Any, *, passed: bool) -> None:
        """The function has. passed: behind the gate."""
        if not isinstance(result, Tensor) or result.numel() != 1:
            return
        if not self.values and not passed:
            self.values = {LOSS: result.detach()}
        elif passed and (self._found or not self.values):
            self._learn(result.detach())

    def _learn(self, result: Tensor) -> None:
        """Where to look for it in later steps."""
        if self._found and is_same(float(self.values[LOSS]), float(result)):
            return
        self.values = {LOSS: result.detach()}
        self._place = self._seen.get(result.data_ptr())
        self.late = self._place is None

    def _look_for_result(self) -> None:
        if self._place is not None:
            code, name = self._place
            frame = next((one for one in self.frames() if one.f_code is code), None)
            value = None if frame is None else frame.f_locals.get(name)
            if isinstance(value, Tensor) and value.numel() == 1:
                self.values, self._found = {LOSS: value.detach()}, True
        elif self._looks < LOOKS_MAX:
            self._looks += 1
            self._seen = {at: place for frame in self.frames() for at, place in _numbers(frame)}

    def frames(self) -> Iterator[FrameType]:
        """Of what the step's function has called and of itself; none if it has returned."""
        found: list[FrameType] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self.code:
            found.append(frame)
            frame = frame.f_back
        if frame is not None:
            yield from (*found, frame)


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


def _numbers(frame: FrameType) -> Iterator[tuple[int, Place]]:
    """Tensors of one element among the variables, by address."""
    for name, value in frame.f_locals.items():
        if isinstance(value, Tensor) and value.numel() == 1 and not hasattr(value, "device_mesh"):
            yield value.data_ptr(), (frame.f_code, name)
