"""What changes in place: methods that do so, and functions of a file that do so to what they are
given, such as `def update(averages, params): for a, p in zip(averages, params): a.mul_(0.9)`.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from trainmover.state.script.code.syntax import Function, called_name, children, walk

CHANGES = frozenset(
    {"append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem"}
    | {"remove", "discard", "add", "clear", "update", "setdefault", "sort", "reverse", "rotate"}
    | {"subtract", "difference_update", "intersection_update", "symmetric_difference_update"}
    | {"move_to_end", "fill", "put", "partition", "resize", "itemset", "__setitem__"}
    | {"__delitem__", "__iadd__", "frombytes", "fromlist"}
)
"""Methods of containers and arrays that change them; torch's own end with an underscore."""
VIEWS = frozenset(
    {"view", "reshape", "select", "narrow", "detach", "numpy", "flatten", "ravel", "t", "squeeze"}
    | {"unsqueeze", "transpose", "permute", "unbind", "split", "chunk", "expand_as", "diagonal"}
    | {"values", "items", "get", "view_as", "expand"}
)
"""Methods whose result shares memory, or is made of what the object holds."""
SAME = frozenset({"data", "T", "mT", "H", "real", "imag", "flat"})
"""Attributes that do."""
PASSES_ON = frozenset(
    {"iter", "next", "list", "tuple", "sorted", "reversed", "enumerate", "zip", "min", "max"}
)
"""Functions whose results are made of what they are given."""
Changed = dict[str, frozenset[int | str]]
"""By the name of a function: parameters that it changes, by place and by name."""


def is_change(name: str) -> bool:
    """A method that changes its object."""
    return name in CHANGES or (name.endswith("_") and not name.startswith("_"))


def changed_parameters(tree: ast.Module) -> Changed:
    """Of the functions and methods of a file; a method's first is the object, and has no place.

    >>> tree = ast.parse("def step(kept, x):\\n  for one in kept: one.add_(x)")
    >>> sorted(changed_parameters(tree)["step"], key=str)
    [0, 'kept']
    """
    methods = {id(one) for cls in walk(tree) for one in children(cls) if type(cls) is ast.ClassDef}
    functions = [
        _read(one, is_method=id(one) in methods) for one in walk(tree) if isinstance(one, Function)
    ]
    found: Changed = {}
    while True:  # They call each other.
        newer: Changed = {}
        for one in functions:
            newer[one.name] = newer.get(one.name, frozenset()) | _changed_in(one, found)
        if newer == found:
            return found
        found = newer


def names_of(call: ast.Call, argument: ast.AST) -> set[int | str]:
    """By which what is called has this argument: its place, or a parameter's name."""
    names: set[int | str] = {number for number, one in enumerate(call.args) if one is argument}
    return names | {one.arg for one in call.keywords if one.value is argument and one.arg}


@dataclass(frozen=True)
class _Body:
    """Of a function, read once.

    by_place  its parameters, in the order of a call
    of        by a name, the parameters whose parts it may be
    nodes     all in it
    """

    name: str
    by_place: list[str]
    of: dict[str, set[str]]
    nodes: list[ast.AST]


def _read(function: Function, *, is_method: bool) -> _Body:
    by_place = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    of = {one: {one} for one in by_place}
    of |= {one.arg: {one.arg} for one in function.args.kwonlyargs}
    nodes = [*walk(function)]
    for node in nodes:
        for target, names in _taken_out(node):
            of.setdefault(target, set()).update(*(of[name] for name in names if name in of))
    return _Body(function.name, by_place[1:] if is_method else by_place, of, nodes)


def _changed_in(function: _Body, known: Changed) -> frozenset[int | str]:
    """Parameters that it changes, or gives to what changes them."""
    roots = {root for node in function.nodes for root in _changed_by(node, known)}
    changed = set[str]().union(*(function.of[root] for root in roots if root in function.of))
    places = (place for place, name in enumerate(function.by_place) if name in changed)
    return frozenset({*changed, *places})


def _taken_out(node: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """Names that are bound to parts of others."""
    match node:
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            pairs = _side_by_side(target, value)
        case ast.Assign(targets=[target], value=value) if _root(value):
            pairs = [(target, value)]
        case _:
            return
    for part, value in pairs:
        names = {one.id for one in walk(value) if isinstance(one, ast.Name)}
        yield from ((one.id, names) for one in walk(part) if isinstance(one, ast.Name))


def _side_by_side(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What a loop binds to parts of what: with `zip` each to its own."""
    match target, value:
        case ast.Tuple(elts=parts), ast.Call(func=ast.Name(id="zip"), args=args):
            if len(parts) == len(args):
                return [*zip(parts, args, strict=True)]
    return [(target, value)]


def _changed_by(node: ast.AST, known: Changed) -> Iterator[str]:
    """Roots of what changes there."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if is_change(name):
            yield _root(value)
        case ast.AugAssign(target=target) | ast.keyword(arg="out", value=target):
            yield _root(target)
        case ast.Assign(targets=targets):
            yield from (_root(one.value) for one in targets if isinstance(one, ast.Subscript))
        case ast.Call() if called_name(node) in known:
            arguments = [*node.args, *(one.value for one in node.keywords)]
            places = known[called_name(node)]
            yield from (_root(one) for one in arguments if names_of(node, one) & places)


def _root(node: ast.AST) -> str:
    """The name that an object is reached from: `a` of `a[0].data`; "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
