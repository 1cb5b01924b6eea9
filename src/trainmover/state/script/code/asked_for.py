# SPDX-License-Identifier: Apache-2.0
"""Attributes that are read or stored to otherwise than by their name in the text of a statement.

`vars(self)` asks for all of an object, `case Point(x=here)` for one by its name in a pattern, and
`getattr(self, f"{kind}_loss")` for one by a name that is made up: any that it may be.
"""

import ast
import re
from collections.abc import Iterator

from trainmover.state.script.code.syntax import Function, called_name, children, last_name, walk

Part = tuple[str, str]
"""What has it, as "self.meter", "" for what has no name; and the name of an attribute."""
_BY_NAME = frozenset({"getattr", "hasattr", "__getattribute__", "attrgetter"})
_WHOLES = frozenset({"vars", "asdict", "astuple", "dumps", "dump", "copy", "deepcopy"}) | {
    *("replace", "getmembers")
}
"""Functions that read all attributes of what they are given."""
_MAY_BE_CALLED = (ast.Name, ast.Attribute, ast.Lambda, ast.Call, ast.IfExp)
_IN_FORMAT = re.compile(r"\{[^{}]*?\.(\w+)[^{}]*\}")


def path_of(node: ast.AST) -> str:
    """ "self.meter"; "" for what is reached otherwise."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = path_of(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        return "self"
    return ""


def part_of(node: ast.Attribute) -> Part:
    return path_of(node.value), node.attr


def asked_by_name(call: ast.Call) -> frozenset[Part]:
    """As in getattr(self, "best")."""
    if called_name(call) in _BY_NAME and call.args[1:]:
        name = call.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return frozenset({(path_of(call.args[0]), name.value)})
    return frozenset()


def asked_otherwise(tree: ast.Module) -> set[str]:
    """Attributes of objects of which all are asked for at once, and those that are asked for in
    patterns, in formats, by operator.attrgetter, or by a name that is made up."""
    nodes = [*walk(tree)]
    found = _of_wholes(tree, nodes) | _by_made_up_names(tree, nodes)
    for one in nodes:
        match one:
            case ast.MatchClass():
                found |= {*one.kwd_attrs}
            case ast.Call() if called_name(one) == "attrgetter":
                constants = (name for name in one.args if isinstance(name, ast.Constant))
                found |= {str(name.value).rpartition(".")[2] for name in constants}
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
                found |= {*_IN_FORMAT.findall(text)}
    return found


def replaced_in(tree: ast.Module) -> set[str]:
    """Names of attributes in whose place others are put, not made of what was there: a method that
    is exchanged."""
    return {
        target.attr
        for one in walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.value, _MAY_BE_CALLED)
        for target in one.targets
        if isinstance(target, ast.Attribute)
        and target.attr not in {last_name(part) for part in walk(one.value)}
    }


def _of_wholes(tree: ast.Module, nodes: list[ast.AST]) -> set[str]:
    classes = [one for one in nodes if isinstance(one, ast.ClassDef)]
    others, readers = _wholes_in(tree) - {"self"}, _readers_of_wholes(nodes)
    asked = {one.name for one in classes if "self" in _wholes_in(one) | _given_whole(one, readers)}
    asked |= _made_of(others | _given_whole(tree, readers), nodes)
    asked |= {one.name for one in classes if _is_data(one)} & _compared(nodes)
    for one in classes * 2:  # Those that derive from them, and from these.
        if asked & {last_name(base) for base in one.bases}:
            asked.add(one.name)
    # A pattern by place, as `Point(x, y)`, says no names.
    asked |= {
        last_name(one.cls) for one in nodes if isinstance(one, ast.MatchClass) and one.patterns
    }
    found = set[str]()
    for one in classes:
        if one.name in asked:
            found |= {attribute for owner, attribute in _stores_in(one) if owner == "self"}
            found |= {*_fields_of(one)}
    return found | {attribute for owner, attribute in _stores_in(tree) if owner in others}


def _wholes_in(node: ast.AST) -> set[str]:
    found = set[str]()
    for one in walk(node):
        match one:
            case ast.Attribute(value=owner, attr="__dict__", ctx=ast.Load()):
                found.add(path_of(owner))
            case ast.Call(args=[owner, *_]) if called_name(one) in _WHOLES:
                found.add(path_of(owner))
    return found - {""}


def _readers_of_wholes(nodes: list[ast.AST]) -> set[tuple[str, int]]:
    """Functions that read all of what they are given, by name, each with which that is."""
    return {
        (one.name, number)
        for one in nodes
        if isinstance(one, Function)
        for wholes in [_wholes_in(one)]
        for number, argument in enumerate((*one.args.posonlyargs, *one.args.args))
        if argument.arg != "self" and argument.arg in wholes
    }


def _given_whole(node: ast.AST, readers: set[tuple[str, int]]) -> set[str]:
    """What is given to these: snapshot(self)."""
    return {
        path_of(given)
        for one in (walk(node) if readers else ())
        if isinstance(one, ast.Call)
        for number, given in enumerate(one.args)
        if (called_name(one), number) in readers
    } - {""}


def _made_of(names: set[str], nodes: list[ast.AST]) -> set[str]:
    """What these are made by calling."""
    return {
        called_name(one.value)
        for one in nodes
        if isinstance(one, ast.Assign) and not names.isdisjoint(map(path_of, one.targets))
    }


def _is_data(node: ast.ClassDef) -> bool:
    """Whether all of it is asked for as one is compared with another."""
    return any("dataclass" in (last_name(one), called_name(one)) for one in node.decorator_list)


def _compared(nodes: list[ast.AST]) -> set[str]:
    """Classes whose objects are compared with others, as far as it can be told."""
    found = [
        part
        for one in nodes
        if isinstance(one, ast.Compare)
        and any(isinstance(by, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for by in one.ops)
        for part in (one.left, *one.comparators)
    ]
    return {*map(called_name, found)} | _made_of({*map(path_of, found)} - {""}, nodes)


def _fields_of(node: ast.ClassDef) -> Iterator[str]:
    """Of a dataclass."""
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id


def _by_made_up_names(tree: ast.Module, nodes: list[ast.AST]) -> set[str]:
    """Those whose name begins as one that is made up. Where nothing of it is known, those that are
    read by no name (what else would read them?), and those whose name stands in a text."""
    imported = {*_imported(nodes)}
    begins = [_known_of(name) for one in nodes if (name := _made_up(one, imported)) is not None]
    if not begins:
        return set()
    stored = {attribute for _, attribute in _stores_in(tree)}
    loaded = {
        one.attr
        for one in nodes
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)
    }
    known = {name for name in stored for begin in begins if begin and name.startswith(begin)}
    texts = {one.value for one in nodes if isinstance(one, ast.Constant)}
    return known | (set[str]() if all(begins) else stored - (loaded - texts))


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for one in nodes:
        if isinstance(one, ast.Import | ast.ImportFrom):
            yield from ((name.asname or name.name).partition(".")[0] for name in one.names)


def _made_up(node: ast.AST, imported: set[str]) -> ast.expr | None:
    """The name that it asks for, if the text does not say it; not of a module, as in
    getattr(torch.optim, args.optimizer)."""
    if not isinstance(node, ast.Call) or called_name(node) not in _BY_NAME or not node.args:
        return None
    if path_of(node.args[0]).partition(".")[0] in imported:
        return None
    name = node.args[-1 if called_name(node) == "attrgetter" else min(1, len(node.args) - 1)]
    return None if isinstance(name, ast.Constant) else name


def _known_of(name: ast.expr) -> str:
    """How it begins, as "loss_" in f"loss_{kind}"; "" if nobody knows."""
    first: ast.AST = name
    while below := children(first):
        if not isinstance(first, ast.JoinedStr | ast.BinOp):
            return ""
        first = below[0]
    is_text = isinstance(first, ast.Constant) and isinstance(first.value, str)
    return first.value if is_text else ""  # type: ignore[attr-defined]


def _stores_in(node: ast.AST) -> Iterator[Part]:
    for one in walk(node):
        if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load):
            yield part_of(one)
