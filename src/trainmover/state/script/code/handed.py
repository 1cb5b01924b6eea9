# SPDX-License-Identifier: Apache-2.0
"""Attributes that leave an expression whole, so that what they hold can be changed where no store
to them shows: `random.shuffle(self.order)`, `torch.add(a, b, out=self.sum)`, `push(self.seen, x)`,
`return self._seen`, `seen = self.seen`, `push = self.seen.append`.

Who is given a number cannot change it, so what counts of these is what may change in place. A part
(`self.x[i]`) goes to and fro in every dataset: it counts only if it is given to what changes it. If
that is a function of the script, another file may say so (`given`).
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from trainmover.state.script.code.changing import (
    PASSES_ON,
    SAME,
    VIEWS,
    is_asked_to_change,
    is_change,
)
from trainmover.state.script.code.functions import READ_BY, Calls, Changes, Taker
from trainmover.state.script.code.grammar import CONSTRUCTORS, aliases, own
from trainmover.state.script.code.syntax import (
    Function,
    called_name,
    children,
    last_name,
    walk,
)

_DISPLAYS = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.IfExp, ast.BoolOp, ast.NamedExpr)


ANYBODY = Taker("", 0, alone=True)
"""Who calls a function, and has what it returns."""
ANY = "*"
"""In the place of a name that only the run knows."""
Parts = dict[str, dict[Taker, int]]
"""By the name of an attribute: who is given a part of it, each with the line."""


def handed(tree: ast.Module) -> dict[str, int]:
    """With the line where each leaves.

    >>> handed(ast.parse("shuffle(self.order); print(self.x[0], len(self.y))"))
    {'order': 1}
    """
    parents = {id(child): node for node in walk(tree) for child in children(node)}
    made = {id(node) for node in _in_constructors(tree)}
    found: dict[str, int] = {}
    for node in walk(tree):
        name = _attribute(node)
        if name and _leaves(node, parents, only_bound=id(node) in made):
            found[name] = max(node.lineno, found.get(name, 0))  # type: ignore[attr-defined]
    return found


def given(tree: ast.Module) -> Parts:
    """Parts of attributes, and what a function has taken out of these, that are given on.

    >>> given(ast.parse("update(self.x[0], 3)"))
    {'x': {Taker(called='update', by=0, alone=True): 1}}
    """
    calls = Calls(tree)
    made = {id(node) for node in _in_constructors(tree)}
    read_by_index = {id(one) for one in _of_datasets(tree)}
    found: Parts = {}
    for scope in (tree, *(one for one in walk(tree) if isinstance(one, Function))):
        nodes = own(tree) if scope is tree else walk(scope)
        taken_out = {
            name: {attribute.attr for attribute in held} for name, held in aliases([*nodes]).items()
        }
        givens = [*_to_functions(scope, calls, made)]
        if isinstance(scope, Function) and id(scope) not in read_by_index:
            givens += _to_callers(scope, made)
        for taker, value in givens:
            for name in _held(value, taken_out):
                found.setdefault(name, {})[taker] = value.lineno
    return found


def _to_functions(
    scope: ast.AST, calls: Calls, made: Collection[int]
) -> Iterator[tuple[Taker, ast.expr]]:
    for node in walk(scope):
        if isinstance(node, ast.Call) and id(node) not in made:
            yield from calls.givens(node)


def _to_callers(scope: Function, made: Collection[int]) -> Iterator[tuple[Taker, ast.expr]]:
    """What a function returns."""
    for node in own(scope):
        match node:
            case (
                ast.Return(value=ast.expr() as value)
                | ast.Yield(value=ast.expr() as value)
                | ast.YieldFrom(value=value)
            ):
                if id(node) not in made:
                    yield ANYBODY, value


def _of_datasets(tree: ast.Module) -> Iterator[ast.AST]:
    """Methods of datasets and samplers that Python calls: batches are made of what they return."""
    for node in walk(tree):
        match node:
            case ast.ClassDef(bases=bases, body=body):
                if any(last_name(one).endswith(("Dataset", "Sampler")) for one in bases):
                    yield from (one for one in body if getattr(one, "name", "").startswith("__"))


def changed_parts(parts: Parts, changes: Changes) -> dict[str, int]:
    """Attributes of which somebody changes what he is given, with the line where he is."""
    lines = {
        name: [line for taker, line in takers.items() if changes.made_by(taker)]
        for name, takers in parts.items()
    }
    return {name: max(found) for name, found in lines.items() if found}


def _held(value: ast.expr, taken_out: Mapping[str, set[str]]) -> Iterator[str]:
    """Attributes that it is, or may be a part of.

    taken_out: by the names of what was taken out of them before
    """
    if name := _attribute(value):
        yield name
    inside: Sequence[ast.AST] = ()
    match value:
        case ast.Name(id=name):
            yield from taken_out.get(name, ())
        case ast.Attribute(value=inner, attr=name) if name in SAME:
            inside = [inner]
        case ast.Subscript(value=inner) | ast.Starred(value=inner):
            inside = [inner]
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in VIEWS:
            inside = [inner]
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in PASSES_ON:
            inside = arguments
        case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part):
            inside = [part]
        case _ if isinstance(value, _DISPLAYS):
            inside = children(value)
    for one in inside:
        if isinstance(one, ast.expr):
            yield from _held(one, taken_out)


def _in_constructors(node: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """What runs as objects are made; not what functions in there do later."""
    for child in children(node):
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        within = getattr(child, "name", "") in CONSTRUCTORS if function else inside
        if within:
            yield child
        yield from _in_constructors(child, within)


def _attribute(node: ast.AST) -> str:
    match node:
        case ast.Attribute(attr=name, ctx=ast.Load()):
            return name
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name
        case ast.Call(func=ast.Name(id="getattr"), args=[_, _, *_]):
            return ANY
        case ast.Subscript(
            value=ast.Call(func=ast.Name(id="vars")) | ast.Attribute(attr="__dict__"),
            slice=ast.Constant(value=str(name)),
            ctx=ast.Load(),
        ):
            return name
    return ""


def _leaves(node: ast.AST, parents: dict[int, ast.AST], *, only_bound: bool) -> bool:
    """Climbs as long as what is above is the object itself, or shares its memory.

    only_bound: it counts only if a method that changes it is kept
    """
    part = False  # Whether it is only what the object holds by now.
    shown = False  # Whether others stand beside it.
    while (above := parents.get(id(node))) is not None:
        match above:
            case ast.Subscript(value=value) if value is node:
                if not isinstance(above.ctx, ast.Load):
                    return not only_bound
                part = True
            case ast.Attribute(attr=name) if name in SAME:
                pass
            case ast.Attribute(attr=name):
                call = parents.get(id(above))
                if not isinstance(call, ast.Call) or call.func is not above:
                    return is_change(name)
                if is_change(name) or is_asked_to_change(call):
                    return not only_bound
                if name not in VIEWS:
                    return False
                part, above = part or name in ("values", "items", "get"), call
            case ast.Call(func=ast.Name(id=name)) if name in PASSES_ON:
                part = True
            case ast.For(iter=value) | ast.comprehension(iter=value) if shown and not part:
                return value is node and not only_bound
            case ast.For(iter=value, target=target) if value is node:
                return not only_bound and _gives_on(target, above.body)
            case ast.comprehension(iter=value, target=target) if value is node:
                return not only_bound and _gives_on(target, [parents[id(above)]])
            case ast.Call() | ast.keyword():
                return not (part or only_bound) and _takes(above, node, parents)
            case ast.Starred():
                part = True
            case ast.Return() | ast.Yield() | ast.Match() | ast.arguments():
                return not (part or only_bound)
            case ast.Assign() | ast.AnnAssign() | ast.withitem():
                return not (part or only_bound)
            case ast.AugAssign(target=target):
                return target is node
            case _ if not isinstance(above, _DISPLAYS):
                return False
            case _:
                shown = True
        node = above
    return False


def _takes(above: ast.Call | ast.keyword, node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    """Whether what is called may change what it is given, as far as its name says."""
    call = parents[id(above)] if isinstance(above, ast.keyword) else above
    if not isinstance(call, ast.Call) or call.func is node:
        return False
    is_out = isinstance(above, ast.keyword) and above.arg == "out"
    return is_out or called_name(call) not in READ_BY


def _gives_on(target: ast.expr, body: Sequence[ast.AST]) -> bool:
    """Whether a loop gives what it takes out to a function that may change it."""
    names = {node.id for node in walk(target) if isinstance(node, ast.Name)}
    return any(
        isinstance(call, ast.Call)
        and called_name(call) not in READ_BY
        and any(isinstance(one, ast.Name) and one.id in names for one in call.args)
        for statement in body
        for call in walk(statement)
    )
