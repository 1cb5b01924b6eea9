# SPDX-License-Identifier: Apache-2.0
"""What is changed in place, and with what: by a method, a function, a store to an entry, also by
another name (`for old in self.last: old.lerp_(...)`), and in a row (`mean.mul_(0.9).add_(x)`).
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from trainmover.state.script.code import grammar
from trainmover.state.script.code.changing import (
    SAME,
    VIEWS,
    is_asked_to_change,
    is_change,
    is_in_place,
)
from trainmover.state.script.code.functions import changes_first
from trainmover.state.script.code.syntax import called_name, last_name

_GATHERS = frozenset({"all_reduce", "all_gather", "broadcast", "reduce"})
"""Their results are of the same kind on all ranks."""
_TAKES_NOTHING_IN = frozenset(
    {"clear", "pop", "popleft", "popitem", "remove", "discard", "sort", "reverse", "rotate"}
    | {"move_to_end", "zero_", "mul_", "div_", "clamp_", "clamp_min_", "round_", "requires_grad_"}
    | {"detach_", "share_memory_", "neg_", "abs_", "squeeze_", "unsqueeze_", "t_", "heapify"}
    | {"heappop", "__delitem__"}
)


@dataclass(frozen=True)
class Change:
    """holders: what may be changed, by whatever name. given: what it is changed with; none where
    it only loses something, or is scaled. anew: whether it gets what nobody gave it"""

    holders: list[ast.expr]
    given: list[ast.expr]
    anew: bool


def changes(nodes: list[ast.AST]) -> Iterator[Change]:
    """In these, which are all of one function, or of the top of a file."""
    taken: dict[str, list[ast.Attribute | ast.Name]] | None = None
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        for holder, given, anew in () if id(node) in called else _changed_by(node):
            if taken is None:
                taken = grammar.taken(nodes)
            holders: list[ast.expr] = [holder]
            if isinstance(whole := grammar.root(holder), ast.Name):
                holders += taken.get(whole.id, [])
            yield Change(holders, given, anew)


def _changed_by(node: ast.AST) -> Iterator[tuple[ast.expr, list[ast.expr], bool]]:
    match node:
        case ast.Call(func=ast.Attribute(value=held, attr=name)) if is_change(name):
            given = _taken_in(name, grammar.given_to(node))
            yield _holder(held), given, not given and name not in _TAKES_NOTHING_IN
        case ast.Call(func=ast.Attribute(value=held)) if is_asked_to_change(node):
            yield _holder(held), [], True
        case ast.Attribute(value=held, attr=name) if is_change(name):  # To be called later.
            yield _holder(held), [], True
        case ast.AugAssign(target=changed, value=value):
            yield _holder(changed), [value], False
        case ast.Assign(targets=targets, value=value):
            for target, its in (pair for one in targets for pair in grammar.pairs(one, value)):
                if isinstance(target, ast.Subscript):
                    yield _holder(target), [its], False
    if isinstance(node, ast.Call):
        name = called_name(node)
        if node.args and changes_first(name) and name not in _GATHERS:
            given = _taken_in(name, grammar.given_to(node)[1:])
            anew = not given and name not in _TAKES_NOTHING_IN
            first = node.args[0]
            for one in first.elts if grammar.is_row(first) else [first]:
                yield _holder(one), given, anew
        for keyword in node.keywords:
            if keyword.arg == "out":
                yield _holder(keyword.value), node.args, not node.args


def _taken_in(name: str, given: list[ast.expr]) -> list[ast.expr]:
    """Of what such a method is given: not how much it takes out, or scales by."""
    if name in _TAKES_NOTHING_IN and not any(map(grammar.varies, given)):
        return []
    if name in ("pop", "remove", "discard", "rotate", "move_to_end", "clear", "sort"):
        return []
    return given


def _holder(value: ast.expr) -> ast.expr:
    """What has the memory, or the entries."""
    while True:
        match value:
            case ast.Attribute(value=inner, attr=name) if name in SAME and last_name(inner):
                value = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if (
                name in VIEWS or is_in_place(name)
            ):
                value = inner
            case ast.Subscript(value=inner) if not grammar.path(value):
                value = inner
            case _:
                return value
