# SPDX-License-Identifier: Apache-2.0
"""What a step works out behind its update, worked out at its gate as well.

    optimizer.step()
    correct = (output.argmax(1) == target).sum()
    return loss.item(), correct.item()

A rank that is lost there takes with it what the lines behind its step go on with: in a variable
(see `foreseen`) it is not yet. But what these lines read is there. So the lines that what is
returned depends on, backwards from the `return`, are run at the gate too, on what the variables
hold: if they do nothing else than to read. What else stands there (`zero_grad()`, a meter) is not
run. What comes out counts only once it has been what the function returned, bit for bit, in several
calls, and for as long as it is.
"""

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from trainmover.state.script.code import grammar
from trainmover.state.script.code.changing import root_of
from trainmover.state.script.code.source import tree_of
from trainmover.state.script.code.syntax import Function, walk
from trainmover.state.script.place.swallowing import function_at
from trainmover.state.script.things.held import goes_on_later, locals_of
from trainmover.torch_internals.tensors import memory_of
from trainmover.worker.step.results.reads import (
    NOTHING,
    ONLY_READ,
    Reader,
    flat,
    is_of_names,
)

_NESTED_MAX = 3
_PARTS_MAX = 64
_PLAIN = bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device
_FIXED = FunctionType, BuiltinFunctionType, ModuleType, type


class Ahead:
    """The lines of one function of which it returns something, behind the gate in it.

    names: of variables that they read
    """

    def __init__(self, names: Sequence[str], function: FunctionType) -> None:
        self._names, self._function = names, function

    def work_out(self, frame: FrameType) -> Any:
        """What the function will return, as its gate sees it. NOTHING: these lines cannot be run
        on what is there."""
        held = locals_of(frame)
        try:
            with torch.no_grad():
                return self._function(*(held[name] for name in self._names))
        except Exception:  # noqa: BLE001  the script's own lines may raise any
            return NOTHING


def ahead_of(frame: FrameType, kept: Iterable[Tensor]) -> Ahead | None:
    """None: these lines do more than to read, or are not known.

    frame: of the function, which has come to its gate
    kept: tensors that are updated behind it
    """
    lines = _lines_of(frame)
    if lines is None:
        return None
    read, held, known = _read_in(lines), locals_of(frame), frame.f_globals
    own = {name: held[name] for name in sorted(read & held.keys())}
    others = {name: known[name] for name in (read - held.keys()) & known.keys()}
    reader = Reader(known, own)
    if not (_stay(own, kept) and _are_fixed(others, frame) and all(map(reader.only_reads, lines))):
        return None
    return Ahead([*own], _compiled(lines, [*own], frame.f_code.co_filename, known))


def _lines_of(frame: FrameType) -> list[ast.stmt] | None:
    """Behind the gate, on which its result depends."""
    code = frame.f_code
    node = function_at(code.co_filename, (code.co_name, code.co_firstlineno))
    if not isinstance(node, Function) or goes_on_later(code):
        return None
    behind = _behind(node.body, frame.f_lineno)
    return None if behind is None else _relied_on(behind)


def _stay(own: Mapping[str, Any], kept: Iterable[Tensor]) -> bool:
    """Whether these variables hold then what they hold now: nothing that is updated, no object that
    lines between may change, as an optimizer's settings are."""
    updated = {0, *map(memory_of, kept)}
    return all(_stays(one, updated) for one in own.values())


def _stays(value: Any, updated: Set[int], depth: int = 0) -> bool:
    if isinstance(value, Tensor):
        return memory_of(value) not in updated
    if isinstance(value, dict | tuple | list):
        inside = value.values() if isinstance(value, dict) else value
        small = len(value) <= _PARTS_MAX and depth < _NESTED_MAX
        return small and all(_stays(one, updated, depth + 1) for one in inside)
    return isinstance(value, _FIXED + _PLAIN) or type(value).__module__ == "numpy"


def _are_fixed(others: Mapping[str, Any], frame: FrameType) -> bool:
    """Whether these globals stay: nothing is changed in place, and no function of the file stores
    to their names."""
    tree = tree_of(frame.f_code.co_filename)
    every = walk(tree) if tree is not None else ()
    stored = {name for one in every if isinstance(one, ast.Global) for name in one.names}
    return stored.isdisjoint(others) and all(map(_is_fixed, others.values()))


def _is_fixed(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= _PARTS_MAX and all(isinstance(one, str | int | float) for one in value)
    return isinstance(value, _FIXED + _PLAIN)


def _behind(body: Sequence[ast.stmt], line: int) -> list[ast.stmt] | None:
    """What is run behind that line, to the end of the function. None: it is not known, as in a
    loop, or it goes on with what this line gives."""
    for at, one in enumerate(body):
        if not one.lineno <= line <= (one.end_lineno or one.lineno):
            continue
        rest = [*body[at + 1 :]]
        if isinstance(one, ast.Expr):
            return [one, *rest]
        if not isinstance(one, ast.With | ast.If):
            return None
        blocks = [one.body] if isinstance(one, ast.With) else [one.body, one.orelse]
        inside = next(filter(None, (_behind(block, line) for block in blocks)), None)
        return None if inside is None else [*inside, *rest]
    return None


def _relied_on(behind: Sequence[ast.stmt]) -> list[ast.stmt] | None:
    """The `return`, and before it the stores of what that reads. None: there is more than one way
    to it."""
    *before, last = flat(behind)
    if not isinstance(last, ast.Return) or last.value is None:
        return None
    lines: list[ast.stmt] = [copy.deepcopy(last)]
    needed = _read_in(lines)
    for one in reversed(before):
        if any(isinstance(inner, ast.Return) for inner in walk(one)):
            return None
        stored = _stored_in(one)
        if stored.isdisjoint(needed):
            if _may_change(one, needed):
                return None
            continue
        line = _as_store(one)
        if line is None:
            return None
        needed = (needed - stored) | _read_in([line])
        lines.insert(0, line)
    return lines


def _may_change(one: ast.stmt, names: set[str]) -> bool:
    """Whether it changes in place what one of these variables holds, as far as names tell."""
    return any(not names.isdisjoint(_changed_by(inner)) for inner in walk(one))


def _changed_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(value=held, attr=name)):
            if name not in ONLY_READ:
                yield root_of(held)
            if name.endswith("_"):
                yield from map(root_of, node.args)
        case ast.Call(func=ast.Name(id=name)) if name.endswith("_"):
            yield from map(root_of, node.args)
        case ast.Subscript(value=held) | ast.Attribute(value=held):
            if not isinstance(node.ctx, ast.Load):
                yield root_of(held)


def _as_store(one: ast.stmt) -> ast.stmt | None:
    """A store to variables, which changes nothing in place. None: it is another statement."""
    match one:
        case ast.Assign(targets=targets) if all(map(is_of_names, targets)):
            return copy.deepcopy(one)
        case ast.AnnAssign(target=ast.Name(), value=ast.expr()):
            return copy.deepcopy(one)
        case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
            now = ast.BinOp(ast.Name(name, ast.Load()), op, value)
            store = ast.Assign([copy.deepcopy(target)], copy.deepcopy(now))
            return ast.fix_missing_locations(ast.copy_location(store, one))
    return None


def _stored_in(node: ast.AST) -> set[str]:
    return {
        one.id for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }


def _read_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that are read in these before they are stored, but for those of comprehensions."""
    found, stored = set[str](), set[str]()
    for node in nodes:
        own = {
            name
            for one in walk(node)
            if isinstance(one, ast.comprehension)
            for name in grammar.names(one.target)
        }
        read = {
            one.id
            for one in walk(node)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
        }
        found |= read - own - stored
        stored |= _stored_in(node)
    return found


def _compiled(
    lines: list[ast.stmt], names: list[str], path: str, known: dict[str, Any]
) -> FunctionType:
    """These lines as a function of the variables that they read."""
    given = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    made: Any = ast.FunctionDef("behind_gate", given, lines, [], None)
    if "type_params" in made._fields:
        made.type_params = []
    module = ast.fix_missing_locations(ast.Module([made], []))
    whole = compile(module, path, "exec", dont_inherit=True)
    inside = next(one for one in whole.co_consts if isinstance(one, CodeType))
    return FunctionType(inside, known)
