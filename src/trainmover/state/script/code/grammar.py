# SPDX-License-Identifier: Apache-2.0
"""What single nodes of a syntax tree say, for whoever reads a script's source. Pure."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TypeGuard

from trainmover.state.script.code.changing import CHANGES, PASSES_ON, SAME, VIEWS, is_change
from trainmover.state.script.code.syntax import Function, called_name, children, last_name, walk

CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__"})
_MACHINE_WORDS = re.compile(
    r"(^|_)((LOCAL|IP)?(HOST|NODE|MACHINE|USER|ADDR)(S|NAMES?|LIST|ID|FILE|ESS)?"
    r"|PPID|PID|TE?MPDIR|HOME|PORTS?|LOG_?(FILE|DIR|PATH|FOLDER|ROOT|NAME)S?)(_|$)"
    r"|(^TE?MP|(^|_)LOGS?)$"
)
_BY_NAME = frozenset({"setattr", "delattr", "__setattr__", "__delattr__"})
_EMPTY = frozenset({"float", "int", "list", "dict", "set", "tuple", "deque", "defaultdict"})
_OURS = frozenset({"batches", "range"})


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names, with what they stand for in full; ".utils.now" of what lies beside the file."""
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (f"{node.module}." if node.module else "")
            for alias in node.names:
                yield alias.asname or alias.name, f"{module}{alias.name}"


def functions(node: ast.AST, owner: str) -> Iterator[tuple[Function, str]]:
    """With the class whose method each is, "" for others."""
    for child in children(node):
        if isinstance(child, Function):
            yield child, owner
            yield from functions(child, owner)
        else:
            yield from functions(child, child.name if isinstance(child, ast.ClassDef) else owner)


def begins_anew(functions: Iterable[tuple[Function, str]]) -> bool:
    """Whether objects may be set up again where they lie: something that is no constructor has one
    by its name."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("__init__", "__post_init__")
        for function, _ in functions
        if function.name not in CONSTRUCTORS
        for node in own(function)
    )


def own(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below `node` that belongs to the same scope."""
    for child in children(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from own(child)


def called_once(tree: ast.Module) -> set[str]:
    """Functions that belong to the set-up, as far as nothing in them is in a loop: what is called
    by its name in one place, which no loop is around, at the top or in another of these."""
    functions = [one for one in walk(tree) if isinstance(one, Function)]
    uses = [one.id for one in walk(tree) if isinstance(one, ast.Name)]
    found, bodies = set[str](), [tree.body]
    while bodies:
        body = [one for one in bodies.pop() if not isinstance(one, Function)]
        nodes = [inner for one in body for inner in (one, *own(one))]
        repeated = set(in_loops(nodes))
        for node in nodes:
            match node:
                case ast.Call(func=ast.Name(id=name)) if id(node) not in repeated:
                    named = [one for one in functions if one.name == name]
                    once = len(named) == 1 and uses.count(name) == 1 and name not in found
                    if once and not named[0].decorator_list:
                        found.add(name)
                        bodies.append(named[0].body)
    return found


def in_loops(nodes: list[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.For | ast.While | ast.AsyncFor):
            yield from (id(inner) for inner in walk(node))


def sources(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Names that a loop or an assignment gives to what it takes out of others, each with the name
    of such a one."""
    for node in nodes:
        for target, value in _bound_by(node):
            for one in _taken_from(value):
                yield from ((name, last_name(one)) for name in names(target))


def aliases(nodes: list[ast.AST]) -> dict[str, list[ast.Attribute]]:
    """Names that a loop or an assignment takes out of attributes, each with these; also by way of
    other names."""
    bound = [
        (name, one)
        for node in nodes
        for target, value in _bound_by(node)
        for one in _taken_from(value)
        for name in names(target)
    ]
    found: dict[str, list[ast.Attribute]] = {}
    for name, one in bound:
        if isinstance(one, ast.Attribute):
            found.setdefault(name, []).append(one)
    by_name = [(name, one.id) for name, one in bound if isinstance(one, ast.Name)]
    while new := [
        (name, one)
        for name, other in by_name
        for one in found.get(other, ())
        if one not in found.get(name, ())
    ]:
        for name, one in new:
            found.setdefault(name, []).append(one)
    return found


def taken(nodes: list[ast.AST]) -> dict[str, list[ast.Attribute | ast.Name]]:
    """Names that a loop or an assignment takes out of others, or puts into attributes, each with
    these; also by way of other names."""
    found: dict[str, list[ast.Attribute | ast.Name]] = {}
    for node in nodes:
        for target, value in _bound_by(node):
            for one in _taken_from(value):
                if isinstance(target, ast.Attribute) and isinstance(one, ast.Name):
                    found.setdefault(one.id, []).append(target)
                for name in _stored_names(target):
                    found.setdefault(name, []).append(one)
    whole = {}
    for name, waiting in found.items():
        known, left = list[ast.Attribute | ast.Name](), [*waiting]
        while left:
            one = left.pop()
            if one not in known:
                known.append(one)
                left += found.get(one.id, []) if isinstance(one, ast.Name) else []
        whole[name] = known
    return whole


def _stored_names(target: ast.expr) -> list[str]:
    return [
        one.id
        for one in walk(target)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    ]


def _bound_by(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield target, value
        case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
            yield from stores_of(node)


def _taken_from(value: ast.expr) -> list[ast.Attribute | ast.Name]:
    """What it goes through, takes a part of, or may be; no methods."""
    inside: list[ast.expr] = []
    match value:
        case ast.Attribute(value=inner, attr=name):
            return [value, *(_taken_from(inner) if name in SAME else [])]
        case ast.Name():
            return [value]
        case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.NamedExpr(value=inner):
            inside = [inner]
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in VIEWS:
            inside = [inner]
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in PASSES_ON:
            inside = arguments
        case ast.IfExp(body=one, orelse=other):
            inside = [one, other]
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            inside = parts
    return [one for part in inside for one in _taken_from(part)]


def changed_in_place(node: ast.AST) -> ast.Name | ast.Attribute | None:
    """The container, or the tensor, that is changed by this node."""
    found = _changed(node)
    while isinstance(found, ast.Subscript) or _is_same(found):
        found = found.value
    return found if isinstance(found, ast.Name | ast.Attribute) else None


def _is_same(node: ast.AST | None) -> TypeGuard[ast.Attribute]:
    """The memory of something else, which has a name: `self.mask.data`."""
    match node:
        case ast.Attribute(value=ast.Name() | ast.Attribute() | ast.Subscript(), attr=name):
            return name in SAME
    return False


def changed_by_name(node: ast.AST) -> str:
    """The name of what is changed by this node, or of what shares its memory; "" if it has none."""
    found = _changed(node)
    while found is not None:
        match found:
            case ast.Attribute(value=inner, attr=name) if name in SAME:
                found = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in VIEWS:
                found = inner
            case ast.Subscript(value=inner):
                found = inner
            case _:
                break
    return found.id if isinstance(found, ast.Name) else ""


def _changed(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            return value
        case ast.AugAssign(target=ast.Name() | ast.Attribute() as target):
            return target
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if is_change(name):
            return value
    return None


def is_on_self(node: ast.AST) -> bool:
    """Whether what it stores to, or what is given to the function that does, belongs to `self`."""
    while True:
        match node:
            case ast.Attribute(attr="__class__"):
                return False
            case ast.Attribute(value=inner) | ast.Subscript(value=inner):
                node = inner
            case ast.AugAssign(target=inner) | ast.Call(func=ast.Attribute() as inner):
                node = inner
            case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name != "type":
                node = inner
            case ast.Name(id=name):
                return name == "self"
            case _:
                return not isinstance(node, ast.Call)


def stored_by_name(node: ast.AST) -> Iterator[tuple[ast.expr | None, str | None]]:
    """What is stored to, None for the globals; and the name, None if only the run knows it."""
    match node:
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[holder, name, *_]):
            yield holder, constant(name)
        case ast.Call(args=[ast.Name(id="setattr" | "delattr"), holder, *names]):
            yield holder, constant(names[0]) if names else None
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args) if attr in _BY_NAME:
            if len(args) == 3:  # object.__setattr__(thing, name, value)
                value, *args = args
            yield value, constant(args[0]) if args else None
        case ast.Subscript(value=value, slice=key, ctx=ast.Store() | ast.Del()):
            if (held := _held_in(value)) is not None:
                yield held[0], constant(key)
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in CHANGES:
            if (held := _held_in(value)) is not None:
                yield from ((held[0], keyword.arg) for keyword in node.keywords)
                if node.args:
                    yield held[0], constant(node.args[0])


def is_stored(node: ast.AST) -> bool:
    """Whether it is an attribute that is stored to."""
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def makes_setter(node: ast.AST) -> bool:
    """Whether something is given `setattr`, to be called later: `partial(setattr, layer, "p")`."""
    given = node.args if isinstance(node, ast.Call) else []
    return any(isinstance(one, ast.Name) and one.id in ("setattr", "delattr") for one in given)


def _held_in(value: ast.expr) -> tuple[ast.expr | None] | None:
    """Of vars(thing), thing.__dict__ and globals(): the thing, None for the globals."""
    match value:
        case ast.Attribute(value=holder, attr="__dict__"):
            return (holder,)
        case ast.Call(func=ast.Name(id="vars"), args=[holder]):
            return (holder,)
        case ast.Call(func=ast.Name(id="globals" | "vars" | "locals"), args=[]):
            return (None,)
    return None


def constant(node: ast.expr) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None  # type: ignore[attr-defined]


def mangle(node: ast.AST, owner: str) -> None:
    """Names that begin with two underscores, as Python has them inside of a class."""
    for child in children(node):
        if owner and isinstance(child, ast.Attribute) and _is_private(child.attr):
            child.attr = f"_{owner.lstrip('_')}{child.attr}"
        elif owner and isinstance(child, ast.Name) and _is_private(child.id):
            child.id = f"_{owner.lstrip('_')}{child.id}"
        mangle(child, child.name if isinstance(child, ast.ClassDef) else owner)


def is_special(name: str) -> bool:
    """As the names that Python itself gives and asks for."""
    return name.startswith("__") and name.endswith("__")


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def is_ours(iterable: ast.expr) -> bool:
    """Whether a loop goes over what the job itself gives, with nothing around it."""
    method = iterable.func if isinstance(iterable, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in _OURS


def is_enumerate(node: ast.For) -> bool:
    call = node.iter
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and (call.func.id == "enumerate")
    )


def first_of(target: ast.expr) -> ast.expr:
    return target.elts[0] if isinstance(target, ast.Tuple | ast.List) and target.elts else target


def names(target: ast.expr) -> set[str]:
    return {node.id for node in walk(target) if isinstance(node, ast.Name)}


def stored_again(nodes: Iterable[ast.AST], repeated: Collection[int]) -> set[str]:
    """Names of a function, or of the top of a file, that are stored in a loop or more than once, or
    that are those of what is around it. repeated: what lies in loops, by id"""
    once, again = set[str](), set[str]()
    for node in nodes:
        match node:
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                again.update(names)
            case ast.Name(id=name, ctx=ast.Store()):
                (again if id(node) in repeated or name in once else once).add(name)
    return again


def held_targets(target: ast.expr, declared: Collection[str]) -> set[str]:
    """Attributes, and containers that have the parts, among the targets of a loop; and names that
    are declared to be of others."""
    found = set[str]()
    for node in walk(target):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Subscript(ctx=ast.Store()):
                found.add(path(root(node)).lstrip("."))
            case ast.Name(id=name) if name in declared:
                found.add(name)
    return found - {""}


def path(node: ast.expr) -> str:
    """How a value is known: "t0" in its scope, ".t0" and ".stats['time']" everywhere; "" if not."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return f".{name}"
        case ast.Subscript(value=value, slice=ast.Constant(value=key)):
            inner = path(value)
            return f"{inner}[{key!r}]" if inner else ""
    return ""


def may_exchange(node: ast.AST) -> bool:
    """Whether it stores to a part of something, or takes a part out, whatever that is."""
    match node:
        case (
            ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del())
        ):
            return True
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in CHANGES or name in _BY_NAME
        case ast.Call(func=ast.Name(id=name)):
            return name in _BY_NAME
        case _:
            return False


def makes_object(call: ast.Call) -> bool:
    """By the custom that classes begin with a capital: what they keep of their arguments is known
    by name only. So it is of `dataclasses.replace(thing, ...)` and of a named tuple's own."""
    name = called_name(call)
    return name[:1].isupper() or name == "_replace" or (name == "replace" and bool(call.args))


def names_machine(name: str) -> bool:
    """Whether a variable of the environment says something of the machine, by its name."""
    return bool(_MACHINE_WORDS.search(name.upper()))


def asks_machine(node: ast.Call | ast.Subscript) -> bool:
    keys = [node.slice] if isinstance(node, ast.Subscript) else node.args
    name = constant(keys[0]) if keys else None
    return name is not None and names_machine(name)


def callables(tree: ast.Module) -> Iterator[tuple[str, list[str], Function | None]]:
    """Functions and classes of which there is one of that name: with their parameters, and the
    function that gets them. A data class has none: there they are its attributes."""
    plain = [node for node, owner in functions(tree, "") if not owner]
    every = [*plain, *(one for one in walk(tree) if isinstance(one, ast.ClassDef))]
    names = [one.name for one in every]
    for one in every:
        if names.count(one.name) > 1:
            continue
        makes: Function | None = None
        if isinstance(one, Function):
            makes, first = one, 0
        else:
            found = [inner for inner in one.body if isinstance(inner, Function)]
            makes, first = next((inner for inner in found if inner.name == "__init__"), None), 1
        if makes is not None:
            yield one.name, [inner.arg for inner in parameters_of(makes)][first:], makes
        elif isinstance(one, ast.ClassDef):
            fields = [inner.target for inner in one.body if isinstance(inner, ast.AnnAssign)]
            yield one.name, [target.id for target in fields if isinstance(target, ast.Name)], None


def parameters_of(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def names_given(function: Function | ast.Lambda) -> set[str]:
    """Of all of its parameters."""
    every = function.args
    rest = [one for one in (every.vararg, every.kwarg) if one is not None]
    return {one.arg for one in (*every.posonlyargs, *every.args, *every.kwonlyargs, *rest)}


def arguments(call: ast.Call, parameters: list[str]) -> Iterator[tuple[str, ast.expr | None]]:
    """What each parameter is given; None if that cannot be told."""
    if any(isinstance(one, ast.Starred) for one in call.args) or not all(
        one.arg for one in call.keywords
    ):
        yield from ((one, None) for one in parameters)
        return
    yield from zip(parameters, call.args, strict=False)
    yield from ((one.arg, one.value) for one in call.keywords if one.arg in parameters)


def given_by(call: ast.Call, function: Function) -> Iterator[tuple[str, ast.expr]]:
    """What each parameter of a function is given, or of a method."""
    parameters = [one.arg for one in parameters_of(function)]
    if isinstance(call.func, ast.Attribute) and parameters[:1] in (["self"], ["cls"]):
        parameters = parameters[1:]
    for parameter, value in arguments(call, parameters):
        if value is not None:
            yield parameter, value


def given_to(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)]


def sum_of(value: ast.expr) -> list[ast.expr]:
    """What is added up, from left to right."""
    match value:
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return [*sum_of(left), *sum_of(right)]
    return [value]


def is_row(value: ast.expr) -> TypeGuard[ast.List | ast.Tuple]:
    return isinstance(value, ast.List | ast.Tuple)


def records(tree: ast.Module) -> Iterator[str]:
    """Classes of named tuples and data classes: what they are made with are their attributes."""
    for node in walk(tree):
        match node:
            case ast.ClassDef(name=name, bases=bases, decorator_list=decorators):
                marks = {last_name(one) or called_name(one) for one in (*bases, *decorators)}
                if not marks.isdisjoint({"NamedTuple", "dataclass"}):
                    yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made):
                if called_name(made) in ("namedtuple", "NamedTuple", "make_dataclass"):
                    yield name


def root(target: ast.expr) -> ast.expr:
    """The container that a part is stored in; else what is stored to."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def stores_of(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What it stores to, each with the value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from pairs(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.NamedExpr(target=target, value=value) | ast.AugAssign(target=target, value=value):
            yield target, value


def all_stores_of(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Also those of loops and of `with`."""
    yield from stores_of(node)
    match node:
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield from pairs(target, value)
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
            yield from pairs(target, value)


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value
        return
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    if len(values) != len(target.elts):
        values = [_part_of(value, number) for number in range(len(target.elts))]
    if any(isinstance(one, ast.Starred) for one in target.elts):
        values = [value] * len(values)
    for one, its in zip(target.elts, values, strict=True):
        yield from pairs(one, its)


def _part_of(value: ast.expr, number: int) -> ast.expr:
    place = ast.Constant(number)
    return ast.copy_location(ast.Subscript(value, place, ast.Load()), value)


def varies(value: ast.expr) -> bool:
    return not isinstance(value, ast.Constant)


def is_size(value: ast.expr) -> bool:
    """Whether it says of how many something is, as a batch's size."""
    match value:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("n", "num", "count", "size", "bs", "b", "B", "batch_size")
        case ast.Call(func=ast.Name(id="len")) | ast.Call(func=ast.Attribute(attr="size")):
            return True
        case ast.Call(func=ast.Attribute(attr="numel" | "item" as name, value=inner)):
            return name == "numel" or is_size(inner)
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
    return False


def is_made_or_taken(node: ast.AST, value: ast.expr) -> bool:
    """Whether it is stored as a whole, and is no row that is put together there."""
    rows = ast.List | ast.Tuple | ast.Dict | ast.BinOp | ast.ListComp | ast.DictComp
    return not isinstance(node, ast.AugAssign) and not isinstance(value, rows)


def stored_by_words(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Attributes that are stored by setattr() and its like, each with the value, if it is known."""
    for _, name in stored_by_name(node):
        if name is not None:
            yield name, node.args[-1] if isinstance(node, ast.Call) and node.args[2:] else None


def holders(
    tree: ast.Module, bodies: Iterable[tuple[object, str, list[ast.AST]]]
) -> dict[str, set[str]]:
    """Attributes, each with the classes that have it as far as their source says; "" of others.

    bodies: as in `scopes.File`
    """
    found: dict[str, set[str]] = {}
    for node in walk(tree):
        for name in _declared(node) if isinstance(node, ast.ClassDef) else ():
            found.setdefault(name, set()).add(node.name)  # type: ignore[attr-defined]
    for _, owner, nodes in bodies:
        for one in nodes:
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
                by = owner if last_name(one.value) in ("self", "cls") else ""
                found.setdefault(one.attr, set()).add(by)
    return found


def _declared(node: ast.ClassDef) -> Iterator[str]:
    for one in node.body:
        targets = [target for target, _ in stores_of(one)]
        targets += [one.target] if isinstance(one, ast.AnnAssign) else []
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def is_reset(node: ast.AST, value: ast.expr) -> bool:
    """Whether a variable begins with it, rather than being given something: 0.0, [], Meter()."""
    if isinstance(node, ast.AugAssign):
        return False
    made = [one for one in walk(value) if isinstance(one, ast.Call)]
    names = [one for one in walk(value) if isinstance(one, ast.Name | ast.Attribute)]
    known = {id(inner) for one in made for inner in walk(one.func)}
    begins = all(makes_object(one) or called_name(one) in _EMPTY for one in made)
    others = [one for one in names if id(one) not in known]
    return begins and all(isinstance(one, ast.Name) and one.id in _EMPTY for one in others)
