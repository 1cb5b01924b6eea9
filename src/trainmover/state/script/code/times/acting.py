# SPDX-License-Identifier: Apache-2.0
"""Classes of a script whose methods change more than their own object: `self.level.scale = ...`
where the level was handed in, a parameter's attribute, a global. An object of such a class is no
tool, though it is only used: a run that has none of it trains otherwise.
"""

import ast
from collections.abc import Iterator

from trainmover.state.script.code import grammar
from trainmover.state.script.code.changing import is_change
from trainmover.state.script.code.syntax import Function, called_name, walk

_STEPS = frozenset({"step", "zero_grad", "backward", "load_state_dict", "setattr", "delattr"})


def acting(tree: ast.Module) -> set[str]:
    """By name; also those that are derived from one."""
    classes = [one for one in walk(tree) if isinstance(one, ast.ClassDef)]
    changing = {
        one.name
        for one in walk(tree)
        if isinstance(one, Function) and one.name != "__init__" and _stores(one)
    }
    found = {one.name for one in classes if _acts(one, changing)}
    while new := {one.name for one in classes if found & _bases(one)} - found:
        found |= new
    return found


def _bases(node: ast.ClassDef) -> set[str]:
    return {one.id for one in node.bases if isinstance(one, ast.Name)}


def _stores(function: Function) -> bool:
    """Whether a function changes some object's attributes or entries."""
    return any(
        isinstance(one, ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store)
        for one in grammar.own(function)
    )


def _acts(node: ast.ClassDef, changing: set[str]) -> bool:
    methods = [one for one in node.body if isinstance(one, Function)]
    given = {*_handed_in(methods)}
    return any(_acts_on_others(one, given, changing) for one in methods if one.name != "__init__")


def _handed_in(methods: list[Function]) -> Iterator[str]:
    """Attributes of its own that hold what it was given."""
    for one in methods:
        parameters = grammar.names_given(one) - {"self", "cls"}
        for node in grammar.own(one):
            for target, value in grammar.stores_of(node):
                names = {inner.id for inner in walk(value) if isinstance(inner, ast.Name)}
                if isinstance(target, ast.Attribute) and names & parameters:
                    yield target.attr


def _acts_on_others(method: Function, given: set[str], changing: set[str]) -> bool:
    nodes = [*grammar.own(method)]
    made = {
        target.id
        for node in nodes
        for target, value in grammar.stores_of(node)
        if isinstance(target, ast.Name) and not _is_others(value, set(), given)
    }
    for node in nodes:
        match node:
            case ast.Global() | ast.Nonlocal():
                return True
            case (
                ast.Attribute(value=held, ctx=ast.Store())
                | ast.Subscript(value=held, ctx=ast.Store())
            ):
                if _is_others(held, made, given):
                    return True
            case ast.Call(func=ast.Attribute(value=held, attr=name)):
                acts = is_change(name) or name in changing or name in _STEPS
                if acts and _is_others(held, made, given):
                    return True
            case ast.Call():
                acts = called_name(node) in changing | _STEPS
                if acts and any(_is_others(one, made, given) for one in node.args):
                    return True
    return False


def _is_others(held: ast.expr, made: set[str], given: set[str]) -> bool:
    """Whether it is, or is a part of, what the object was handed, or a name of neither the method's
    making nor its own."""
    first = ""
    while True:
        match held:
            case ast.Attribute(value=inner, attr=name):
                held, first = inner, name
            case ast.Subscript(value=inner) | ast.Call(func=inner):
                held = inner
            case _:
                break
    if not isinstance(held, ast.Name) or held.id in made:
        return False
    return first in given if held.id in ("self", "cls") else True
