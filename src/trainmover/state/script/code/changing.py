"""What changes in place: methods that do so, and functions that do so to what they are given, such
as `def update(averages, params): for a, p in zip(averages, params): a.mul_(0.9)`.

Functions are known by their names, in whichever file of the script they are written, and by the
names that they have where they are called: `from averages import update as move`.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainmover.state.script.code.syntax import Function, called_name, children, last_name, walk

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
Given = tuple[str, int | str]
"""A function, and by which it has what it is given: its place, or a parameter's name."""
Changed = dict[str, frozenset[int | str]]
"""By the name of a function: parameters that it changes, by place and by name."""
_FIRST: frozenset[int | str] = frozenset({0})
OF_LIBRARIES: Changed = {
    **dict.fromkeys(("heappush", "heappop", "heapify", "heapreplace", "heappushpop"), _FIRST),
    **dict.fromkeys(("insort", "insort_left", "insort_right", "shuffle"), _FIRST),
    **dict.fromkeys(("setitem", "delitem", "iadd", "isub", "imul", "itruediv"), _FIRST),
    **dict.fromkeys(("copyto", "at", "putmask", "place", "put_along_axis"), _FIRST),
    **dict.fromkeys(("fill_diagonal", "all_reduce", "broadcast", "reduce", "recv"), _FIRST),
    **dict.fromkeys(("all_gather", "all_gather_into_tensor", "all_gather_object"), _FIRST),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_tensor", "all_to_all"), _FIRST),
    **dict.fromkeys(("all_to_all_single", "broadcast_object_list"), _FIRST),
    "vector_to_parameters": frozenset({1}),
}
"""Python's own, numpy's and torch's, beside those whose names end with an underscore."""


@dataclass(frozen=True)
class Body:
    """What a function does to what it is given.

    by_place  its parameters, in the order of a call
    changes   those that it changes by itself
    gives     those that it gives to others, with these
    """

    name: str
    by_place: tuple[str, ...]
    changes: frozenset[str]
    gives: frozenset[tuple[str, Given]]

    def changed(self, known: Changed) -> frozenset[int | str]:
        """Parameters that it changes, or gives to what changes them."""
        given = {name for name, (called, by) in self.gives if by in known.get(called, ())}
        changed = self.changes | given
        places = (place for place, name in enumerate(self.by_place) if name in changed)
        return frozenset({*changed, *places})


@dataclass(frozen=True)
class Alias:
    """Another name of a function, or of an object that is called as one.

    filled  so many of its places are, as in partial(update, averages)
    """

    name: str
    of: str
    filled: int = 0

    def changed(self, known: Changed) -> frozenset[int | str]:
        changed = known.get(self.of, frozenset())
        left = (one if type(one) is str else int(one) - self.filled for one in changed)
        return frozenset(one for one in left if type(one) is str or int(one) >= 0)


def is_change(name: str) -> bool:
    """A method that changes its object; a function, what it is given first."""
    return name in CHANGES or is_in_place(name)


def is_in_place(name: str) -> bool:
    """As torch names what changes its object, or what it is given first."""
    return name.endswith("_") and not name.endswith("__")


def functions_in(tree: ast.Module) -> list[Body | Alias]:
    """Functions and methods of a file; a method's first is the object, and has no place."""
    imported = {name for node in walk(tree) for name in _imported(node)}
    found: list[Body | Alias] = [*(one for node in walk(tree) for one in _aliases(node))]
    for owner in walk(tree):
        for one in children(owner):
            if isinstance(one, Function):
                found += _read(one, owner, imported)
    return found


def changed_by(functions: Iterable[Body | Alias]) -> Changed:
    """What all of these change, who call each other.

    >>> tree = ast.parse("def step(kept, x):\\n  for one in kept: one.add_(x)\\nmove = step")
    >>> sorted(changed_by(functions_in(tree))["move"], key=str)
    [0, 'kept']
    """
    functions, found = [*functions], OF_LIBRARIES
    while True:
        newer = dict(OF_LIBRARIES)
        for one in functions:
            newer[one.name] = newer.get(one.name, frozenset()) | one.changed(found)
        if newer == found:
            return found
        found = newer


def givens(call: ast.Call) -> Iterator[tuple[Given, ast.expr]]:
    """What it is given, and by which."""
    name = called_name(call)
    yield from (((name, place), one) for place, one in enumerate(call.args))
    yield from (((name, one.arg), one.value) for one in call.keywords if one.arg)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((one.asname or one.name).partition(".")[0] for one in node.names)


def _aliases(node: ast.AST) -> Iterator[Alias]:
    match node:
        case ast.ImportFrom(names=names):
            yield from (Alias(one.asname, one.name) for one in names if one.asname)
        case ast.Assign(targets=[target], value=value) if last_name(target):
            yield from _alias(last_name(target), value)
        case ast.AnnAssign(target=target, value=ast.expr() as value) if last_name(target):
            yield from _alias(last_name(target), value)
        case ast.keyword(arg=str(name), value=value):
            yield from _alias(name, value)
        case ast.ClassDef(name=name, bases=bases):
            yield from (Alias(_object(name), _object(last_name(one))) for one in bases)


def _alias(name: str, value: ast.expr) -> Iterator[Alias]:
    match value:
        case ast.Name() | ast.Attribute():
            yield Alias(name, last_name(value))
        case ast.Call(args=[function, *filled]) if called_name(value) == "partial":
            yield Alias(name, last_name(function), len(filled))
        case ast.Call():
            yield Alias(name, _object(called_name(value)))


def _object(kind: str) -> str:
    """As a function: an object of that class, which is called."""
    return f"{kind}()"


def _read(function: Function, owner: ast.AST, imported: set[str]) -> Iterator[Body]:
    is_method = type(owner) is ast.ClassDef and not any(
        last_name(one) == "staticmethod" for one in function.decorator_list
    )
    by_place = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    of = {one: {one} for one in by_place}
    of |= {one.arg: {one.arg} for one in function.args.kwonlyargs}
    nodes = [*walk(function)]
    for node in nodes:
        for target, names in _taken_out(node):
            of.setdefault(target, set()).update(*(of[name] for name in names if name in of))
    roots = {root for node in nodes for root in _changed_by(node, imported)}
    changes = frozenset(one for root in roots for one in of.get(root, ()))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    given = [one for call in calls for one in givens(call)]
    gives = frozenset((one, by) for by, value in given for one in of.get(_root(value), ()))
    called = [function.name]
    if isinstance(owner, ast.ClassDef) and function.name in ("__call__", "forward"):
        called.append(_object(owner.name))
    for name in called:
        yield Body(name, tuple(by_place[1:] if is_method else by_place), changes, gives)


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


def _changed_by(node: ast.AST, imported: set[str]) -> Iterator[str]:
    """Roots of what changes there.

    imported: names whose functions change what they are given first, as torch._foreach_add_ does
    """
    match node:
        case ast.Call(func=func) if is_change(called_name(node)):
            root = _root(func)
            is_function = isinstance(func, ast.Name) or root in imported
            yield from map(_root, node.args[:1] if is_function else [func])
        case ast.AugAssign(target=target) | ast.keyword(arg="out", value=target):
            yield _root(target)
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            yield _root(value)


def _root(node: ast.AST) -> str:
    """The name that an object is reached from: `a` of `a[0].view(-1)`; "" if there is none."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in VIEWS:
                node = inner
            case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in PASSES_ON:
                node = inner
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
                node = inner
            case _:
                return node.id if isinstance(node, ast.Name) else ""
