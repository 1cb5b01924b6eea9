# SPDX-License-Identifier: Apache-2.0
"""Names of globals and attributes that steps may store to, by what the source says.

A step is a function that is marked (`@job.step`, `job.step(train)`), or made by one that is called
there (`job.step(make_step(window))`); with it run all functions of the script that it calls or
names, constructors of the classes that it names, and those that nobody calls by name: modules'
`forward`, hooks, lambdas, what operators, `with` and `thing[key]` call, and what libraries call of
a class that is derived from one of theirs (`emit` of a handler of the log). Where something is
called that has no name of its own (`RULES[kind](x)`, `criterion(x)` of an argument) it may be any
function that is used as a value, unless it is somebody's option (`collate_fn=padded`); where a
method's name is made (`getattr(callback, f"on_{event}")`), any that fits.

What is stored to under another name is stored to as well: `seen` of `for seen in rates.values()`,
and what a function is given for the parameter that it fills.
"""

import ast
import builtins
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainmover.state.script.code import grammar
from trainmover.state.script.code.changing import CHANGES_FIRST
from trainmover.state.script.code.syntax import Function, called_name, last_name, walk

_CALLED_BY_NOBODY = frozenset({"forward", "__call__", "extra_repr"})
_OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.MatMult: "matmul", ast.Div: "truediv",
    ast.Mod: "mod", ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitOr: "or",
    ast.BitXor: "xor", ast.BitAnd: "and", ast.FloorDiv: "floordiv",
}  # fmt: skip
_COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__")
_READS = ("__getitem__", "__missing__", "__len__", "__bool__", "__iter__", "__next__")
"""By which data is read, too: a fetch calls those of datasets and samplers, which have a base."""
_NO_CALLER = frozenset({"object", "ABC", "Protocol", "Generic", "NamedTuple", "TypedDict"})


class Steps(NamedTuple):
    """marked  the functions that are steps
    bodies  all functions that run with them, these among them
    """

    marked: list[Function]
    bodies: list[ast.AST]


def steps_in(trees: Iterable[ast.Module]) -> Steps:
    """Of a script's files."""
    script = _Script([node for tree in trees for node in walk(tree)])
    marks = {name: None for node in script.nodes for name in script.marked_by(node)}
    marked = [body for name in marks for body in script.functions.get(name, [])]
    bodies: list[ast.AST] = [node for node in script.nodes if isinstance(node, ast.Lambda)]
    waiting = [*marks, *(name for node in script.nodes for name in _hooked_by(node))]
    waiting += _CALLED_BY_NOBODY
    waiting += [name for body in bodies for name in script.named_in(body)]
    waiting += _called_by_libraries(script.nodes)
    known = set[str]()
    while waiting:
        name = waiting.pop()
        if name in known:
            continue
        known.add(name)
        found = script.runs_by(name)
        bodies += found
        waiting += [one for body in found for one in script.named_in(body)]
    return Steps(marked, bodies)


def stored_in_steps(steps: Steps) -> frozenset[str]:
    """`aux` of `trainer.aux = 0` and of `setattr(trainer, "aux", 0)`, `SEEN` of `SEEN.append(x)`
    and of `global SEEN`."""
    stored = {id(body): {*_stored_in(body)} for body in steps.bodies}
    calls = [_Given.of(node) for body in steps.bodies for node in walk(body)]
    given = [one for one in calls if one is not None]
    functions: dict[str, list[Function]] = {}
    for body in steps.bodies:
        if isinstance(body, Function):
            functions.setdefault(body.name, []).append(body)
    found = {name for names in stored.values() for name in names}
    while new := {
        argument
        for call in given
        for body in functions.get(call.name, ())
        for parameter, argument in call.by_parameter(body)
        if parameter in stored[id(body)] and argument not in found
    }:
        found |= new
        for body in steps.bodies:
            stored[id(body)] |= new & {one.arg for one in _parameters(body)}
    return frozenset(found)


class _Script:
    """What is where in its files."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.nodes = nodes
        self.functions: dict[str, list[Function]] = {}
        self._readers = dict[str, list[Function]]()
        self._constructors: dict[str, list[Function]] = {}
        others = {called_name(node) for node in nodes}
        others |= {last_name(one.value) for one in nodes if isinstance(one, ast.keyword)}
        values = {last_name(node) for node in nodes} - others
        for node in nodes:
            if isinstance(node, Function):
                self.functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                self._know_class(node)
        for name in _READS:
            self.functions.pop(name, None)
        self.functions |= self._readers
        decorated = {name for name, them in self.functions.items() if any(map(_is_kept, them))}
        self._values = sorted(decorated | (values & self.functions.keys()))

    def _know_class(self, node: ast.ClassDef) -> None:
        methods = [one for one in node.body if isinstance(one, Function)]
        self._constructors[node.name] = [one for one in methods if one.name in grammar.CONSTRUCTORS]
        if not {last_name(base) for base in node.bases} - _NO_CALLER:
            for one in methods:
                if one.name in _READS:
                    self._readers.setdefault(one.name, []).append(one)

    def runs_by(self, name: str) -> list[ast.AST]:
        """What runs where that is named: functions; of a class its constructors."""
        return [*self.functions.get(name, ()), *self._constructors.get(name, ())]

    def marked_by(self, node: ast.AST) -> Iterator[str]:
        """Names of functions that are marked as steps here."""
        if isinstance(node, Function):
            marks = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
            if any(isinstance(one, ast.Attribute) and one.attr == "step" for one in marks):
                yield node.name
        elif isinstance(node, ast.Call) and called_name(node) == "step":
            for one in node.args:
                yield from self._meant(one)

    def _meant(self, step: ast.expr) -> Iterator[str]:
        """By what is marked: a function, one that is made of it, or one that is made in it."""
        if not isinstance(step, ast.Call):
            yield last_name(step)
            return
        for maker in self.functions.get(called_name(step), ()):
            yield from (one.name for one in walk(maker) if isinstance(one, Function))
        for one in step.args:
            yield from self._meant(one)

    def named_in(self, body: ast.AST) -> Iterator[str]:
        for node in walk(body):
            if name := last_name(node):
                yield name
            yield from _meant_by(node)
            if isinstance(node, ast.Call):
                yield from self._called(node)

    def _called(self, call: ast.Call) -> Iterator[str]:
        match call:
            case ast.Call(func=ast.Name(id="getattr"), args=[_, name, *_]):
                first = [*name.values, name][0] if isinstance(name, ast.JoinedStr) else name
                begins = grammar.constant(first) or ""
                yield from (one for one in self.functions if one.startswith(begins))
            case ast.Call(func=ast.Attribute() | ast.Call(func=ast.Name(id="getattr"))):
                pass
            case ast.Call(func=ast.Name(id=name)) if self.runs_by(name) or name in vars(builtins):
                pass
            case _:
                yield from self._values


class _Given(NamedTuple):
    """A call by a name, with names of what it gives."""

    name: str
    positional: list[str]
    keywords: dict[str, str]

    @classmethod
    def of(cls, node: ast.AST) -> "_Given | None":
        if not isinstance(node, ast.Call) or not called_name(node):
            return None
        keywords = {one.arg: last_name(one.value) for one in node.keywords if one.arg}
        return cls(called_name(node), [*map(last_name, node.args)], keywords)

    def by_parameter(self, function: Function) -> Iterator[tuple[str, str]]:
        parameters = [one.arg for one in _parameters(function)]
        if parameters[:1] in (["self"], ["cls"]):
            del parameters[0]
        for pair in [*zip(parameters, self.positional, strict=False), *self.keywords.items()]:
            if all(pair):
                yield pair


def _parameters(body: ast.AST) -> list[ast.arg]:
    if not isinstance(body, Function | ast.Lambda):
        return []
    return [*body.args.posonlyargs, *body.args.args, *body.args.kwonlyargs]


def _is_kept(function: Function) -> bool:
    """Something of the script's may keep it: a registry."""
    known = ("property", "staticmethod", "classmethod", "setter", "step", "no_grad", "wraps")
    marks = [one.func if isinstance(one, ast.Call) else one for one in function.decorator_list]
    return any(last_name(one) not in known for one in marks)


def _hooked_by(node: ast.AST) -> Iterator[str]:
    """Names of functions that are given to a hook here."""
    if isinstance(node, ast.Call) and "hook" in called_name(node):
        yield from (last_name(one) for one in node.args)


def _called_by_libraries(nodes: list[ast.AST]) -> Iterator[str]:
    """Methods that the script itself never names, of classes that are derived from others' ones."""
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    own = {one.name for one in classes}
    named = {last_name(node) for node in nodes if not isinstance(node, Function)}
    for one in classes:
        bases = {last_name(base) for base in one.bases}
        if bases - own - _NO_CALLER or (bases & own):
            names = (method.name for method in one.body if isinstance(method, Function))
            yield from (name for name in names if name[:2] != "__" and name not in named)


def _meant_by(node: ast.AST) -> Iterator[str]:
    """Methods that a piece of syntax calls."""
    match node:
        case ast.With():
            yield from ("__enter__", "__exit__")
        case ast.AsyncWith():
            yield from ("__aenter__", "__aexit__")
        case ast.AugAssign(op=op) | ast.BinOp(op=op):
            name = _OPERATORS[type(op)]
            yield from (f"__{name}__", f"__i{name}__", f"__r{name}__")
        case ast.Compare():
            yield from _COMPARED
        case ast.Subscript(ctx=ast.Store()):
            yield "__setitem__"
        case ast.Subscript(ctx=ast.Del()):
            yield "__delitem__"
        case ast.Attribute(ctx=ast.Store()):
            yield "__setattr__"
        case ast.Call(func=ast.Name(id="float" | "int" | "bool" | "len" | "iter" | "next" as kind)):
            yield f"__{kind}__"
        case ast.Subscript():
            yield from ("__getitem__", "__missing__")
        case ast.For() | ast.comprehension():
            yield from ("__iter__", "__next__", "__getitem__")
        case ast.If() | ast.While() | ast.IfExp() | ast.BoolOp():
            yield from ("__bool__", "__len__")


def _stored_in(body: ast.AST) -> Iterator[str]:
    nodes = walk(body)
    found = {name for node in nodes for name in _stored_by(node)}
    sources = [*grammar.sources(nodes)]
    while new := {one for name, one in sources if name in found and one not in found}:
        found |= new
    yield from found


def _stored_by(node: ast.AST) -> Iterator[str]:
    for holder, name in grammar.stored_by_name(node):
        if name is not None:
            yield name
        elif holder is not None and last_name(holder) != "self":
            yield last_name(holder)  # All that hangs on it.
    match node:
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case ast.Attribute(attr=attr, ctx=ast.Store() | ast.Del()):
            yield attr
        case ast.Call(args=[first, *_]) if called_name(node) in CHANGES_FIRST:
            yield last_name(first)
        case _ if (changed := grammar.changed_in_place(node)) is not None:
            yield last_name(changed)
