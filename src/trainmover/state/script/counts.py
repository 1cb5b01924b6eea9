# SPDX-License-Identifier: Apache-2.0
"""Variables that steps count: see `code.step_counts`.

Who takes a rank has them as the rank had them at its fetch, and passes over the step that the rank
has made since: there they are counted on.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import CellType, FrameType, FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from torch import nn

from trainmover.state.script.code.in_steps import Steps
from trainmover.state.script.code.step_counts import StepCount, counted_by
from trainmover.state.script.place.swallowing import function_at
from trainmover.state.script.search.layout import Slot

_SETTERS: set[object] = {one.__setattr__ for one in (object, SimpleNamespace, nn.Module)}


class Count(NamedTuple):
    """Of one step that is called. holder[name] is the number, or that of a cell.

    scope     the function whose cell it is
    is_entry  of a dict of the script's
    """

    holder: dict[Any, Any] | CellType
    name: str | int
    by: int | float
    scope: str = ""
    is_entry: bool = False

    @property
    def value(self) -> Any:
        holder = self.holder
        return _in_cell(holder) if isinstance(holder, CellType) else holder.get(self.name)

    def go_on(self) -> None:
        """As the step does."""
        if isinstance(self.holder, CellType):
            self.holder.cell_contents = self.value + self.by
        else:
            self.holder[self.name] = self.value + self.by

    def is_in(self, slot: Slot, value: object, frame: FrameType | None) -> bool:
        """Whether this variable is what counts, or has the entry. frame: of its function"""
        if self.is_entry:
            return value is self.holder
        if slot.owner is self.holder:
            return isinstance(self.holder, CellType) or bool(slot.name == self.name)
        is_local = slot.owner is None and slot.name == self.name
        return is_local and frame is not None and frame.f_code.co_qualname == self.scope


class Counts:
    """Of one run of the script.

    steps  what runs in them
    seen   by the steps that it has made in the sandbox
    """

    def __init__(self, steps: Callable[[], Steps]) -> None:
        self.seen: list[Count] = []
        self._steps = steps
        self._known: tuple[Steps, Mapping[ast.AST, list[StepCount]]] | None = None

    def note(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """A step is made in the sandbox."""
        known = {(id(one.holder), one.name) for one in self.seen}
        made = self.of(function, args, kwargs)
        self.seen += [one for one in made if (id(one.holder), one.name) not in known]

    def of(self, function: Callable[..., Any], args: Any, kwargs: Any) -> list[Count]:
        """What the step counts that is called so. Of one that is decorated nothing is known: it may
        call the function that counts, or not."""
        plain: Any = function
        if inspect.ismethod(plain):
            plain, args = plain.__func__, (plain.__self__, *args)
        if not isinstance(plain, FunctionType):
            return []
        given = dict(zip(_parameters(plain), args, strict=False)) | kwargs
        found = (_found(one, plain, given) for one in self._in(plain))
        return [one for one in found if one is not None and type(one.value) in (int, float)]

    def forget(self) -> None:
        """The run is over."""
        self.seen, self._known = [], None

    def _in(self, function: FunctionType) -> Iterable[StepCount]:
        steps = self._steps()
        if self._known is None or self._known[0] is not steps:
            self._known = steps, counted_by(steps)
        code = function.__code__
        node = function_at(code.co_filename, (code.co_name, code.co_firstlineno))
        return self._known[1].get(node, []) if node is not None else []


def _along(held: Any, names: Iterable[str]) -> Any:
    for name in names:
        held = getattr(held, "__dict__", {}).get(name)
    return held


def _in_cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # It is empty.
        return None


def _parameters(function: FunctionType) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def _found(count: StepCount, function: FunctionType, given: Mapping[str, Any]) -> Count | None:
    """Where that number is; None if it is none, or lies where a store may do more."""
    root, *names = count.path
    code, cells = function.__code__, function.__closure__ or ()
    cell = dict(zip(code.co_freevars, cells, strict=True)).get(root)
    if not names and count.key is None:
        if cell is not None:
            scope = function.__qualname__.rpartition(".<locals>.")[0]
            return Count(cell, root, count.by, scope)
        return Count(function.__globals__, root, count.by)
    if root in code.co_varnames:
        held = given.get(root)
    elif cell is not None:
        held = _in_cell(cell)
    else:
        held = function.__globals__.get(root)
    if count.key is not None:
        held = _along(held, names)
        return Count(held, count.key, count.by, is_entry=True) if type(held) is dict else None
    held, name = _along(held, names[:-1]), names[-1]
    kind, holder = type(held), getattr(held, "__dict__", None)
    plain = kind.__setattr__ in _SETTERS and not hasattr(getattr(kind, name, None), "__set__")
    return Count(holder, name, count.by) if type(holder) is dict and plain else None
