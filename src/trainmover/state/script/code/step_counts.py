# SPDX-License-Identifier: Apache-2.0
"""What every step of one kind adds the same number to, whatever its data: `self.global_step += 1`.

Where a step that the rank has made is passed over, what it has made of the script's variables is
gone with the machine; but this is known. It must be a statement of the step's own body, in no
branch, loop or manager that may swallow errors, and behind no `return`; and nothing else that runs
with steps may store to what has that name. (What it is called there is all that is looked at: who
takes a rank counts on only what has been the same on all ranks.)
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeGuard

from trainmover.state.script.code import grammar
from trainmover.state.script.code.asked_for import path_of
from trainmover.state.script.code.in_steps import Steps
from trainmover.state.script.code.syntax import (
    Function,
    called_name,
    children,
    last_name,
    walk,
)

_STORES = (ast.Store, ast.Del)
_LEAVES = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await)
_SELF = "self"
_LETS_THROUGH = frozenset(
    {"autocast", "no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "no_sync"}
    | {"record_function", "profile", "accumulate", "join", "device"}
)
"""Managers of `with` that let errors through: what stands behind one is not come to after it."""


class StepCount(NamedTuple):
    """path  a name from around the step, or a parameter of it, and attributes from there on
    by    how much it becomes more
    key   what counts is this entry of what is there; None: it is no entry
    """

    path: tuple[str, ...]
    by: int | float
    key: str | int | None = None


def counted_by(steps: Steps) -> dict[ast.AST, list[StepCount]]:
    """What each of the functions counts that are marked as steps."""
    counts = {one: [*_counts(one)] for one in steps.marked if not _is_part(one, steps)}
    known = {id(target) for found in counts.values() for target, _ in found}
    stored = [one for body in steps.bodies for one in _stored(body)]
    others = {name for node, name in stored if id(node) not in known}
    every, handed = {name for _, name in stored}, {*_handed(steps)}

    def is_known(count: StepCount) -> bool:
        *around, last = count.path
        shared = last in others or (count.key is not None and last in handed)
        return not shared and every.isdisjoint([None, *around[1:]])

    return {step: [one for _, one in found if is_known(one)] for step, found in counts.items()}


def _counts(step: Function) -> Iterator[tuple[ast.AST, StepCount]]:
    """With the node that is stored to."""
    declared = {
        name
        for node in grammar.own(step)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    stored = {node.id for node in walk(step) if _is_stored(node)}
    for statement in _always_run(step.body):
        target, by = _added(statement)
        target, key = _entry(target)
        path = path_of(target).split(".")
        is_name = len(path) == 1 and key is None
        is_there = path[0] in declared if is_name else path[0] not in stored
        if by is not None and path != [""] and is_there:
            yield target, StepCount(tuple(path), by, key)
        if any(isinstance(node, _LEAVES) for node in (statement, *grammar.own(statement))):
            return


def _always_run(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """In a call that ends well, unless one before it leaves the function."""
    for statement in body:
        match statement:
            case ast.With(items=items, body=inner) if all(
                called_name(item.context_expr) in _LETS_THROUGH for item in items
            ):
                yield from _always_run(inner)
            case ast.Try(handlers=[], body=inner, orelse=[], finalbody=last):
                yield from _always_run([*inner, *last])
            case _ if not isinstance(statement, Function):
                yield statement


def _added(statement: ast.stmt) -> tuple[ast.AST, int | float | None]:
    """The target and the number of `x += 1` and of `x = x + 1`; None: it is no such statement."""
    match statement:
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as sign, value=by):
            pass
        case ast.Assign(
            targets=[target], value=ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=by)
        ) if ast.unparse(left) == ast.unparse(target):
            pass
        case _:
            return statement, None
    number = by.value if isinstance(by, ast.Constant) else None
    if type(number) is int or type(number) is float:
        return target, number if isinstance(sign, ast.Add) else -number
    return statement, None


def _entry(node: ast.AST) -> tuple[ast.AST, str | int | None]:
    """As `state` and "step" of `state["step"]`; of anything else itself and None."""
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=str() | int() as key)):
            return value, key
    return node, None


def _is_part(step: Function, steps: Steps) -> bool:
    """Whether it seems to be called in a step, too."""
    named = [node for body in steps.bodies for node in walk(body)]
    if step.args.args and step.args.args[0].arg == _SELF:
        return any(
            isinstance(node, ast.Attribute) and node.attr == step.name and _is_self(node.value)
            for node in named
        )
    return any(isinstance(node, ast.Name) and node.id == step.name for node in named)


def _is_self(node: ast.AST) -> bool:
    return called_name(node) == "super" or last_name(node) == _SELF


def _stored(body: ast.AST) -> Iterator[tuple[ast.AST, str | None]]:
    """What is stored to, and its name; None: only the run knows it."""
    for node in walk(body):
        yield from ((node, name) for _, name in grammar.stored_by_name(node))
        changed = grammar.changed_in_place(node)
        is_attribute = isinstance(node, ast.Attribute) and isinstance(node.ctx, _STORES)
        if is_attribute or _is_stored(node):
            yield node, last_name(node)
        elif changed is not None:
            yield changed, last_name(changed)


def _handed(steps: Steps) -> Iterator[str]:
    """Names whose objects steps do more with than look up an entry: others may store to them."""
    for node in (node for body in steps.bodies for node in walk(body)):
        looked_up = node.value if isinstance(node, ast.Subscript) else None
        yield from (last_name(one) for one in children(node) if one is not looked_up)


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, _STORES)
