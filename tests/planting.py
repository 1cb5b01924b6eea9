"""A bug of one line, planted in the code that runs, for as long as a `with` lasts.

It stands in a function that is named, and is one of the changes that `make mutants` makes there, or
other code for an expression or a statement. Code is compared as syntax trees, so that its format is
no matter. The changed source is compiled, and every function of the module gets the code that it
would have: callers that have imported one of them call the changed one too.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType

from tests.mutants import one_line


@contextmanager
def planted(module_name: str, function: str, what: str, instead: int | str) -> Iterator[None]:
    """Change a function of trainmover.

    what, instead: a kind of change (`one_line.py`) and which of its kind in that function; or code,
    which must stand there exactly once, and what stands there then.
    """
    module = importlib.import_module(f"trainmover.{module_name}")
    source = inspect.getsource(module)
    if isinstance(instead, int):
        tree = one_line.changed(source, _number(source, function, what, instead))
    else:
        tree = _rewritten(source, function, what, instead)
    changed = ModuleType(module.__name__)
    changed.__file__ = module.__file__
    exec(compile(tree, str(module.__file__), "exec"), changed.__dict__)
    ours, theirs = functions(module), functions(changed)
    before = {name: its.__code__ for name, its in ours.items()}
    try:
        for name, its in ours.items():
            its.__code__ = theirs[name].__code__
        yield
    finally:
        for name, its in ours.items():
            its.__code__ = before[name]


def _number(source: str, function: str, kind: str, which: int) -> int:
    """Return the number of that change among all of the module."""
    owner = _function(ast.parse(source), function)
    lines = range(owner.lineno, (owner.end_lineno or owner.lineno) + 1)
    there = one_line.kinds_and_lines(source)
    numbers = [n for n, (its, line) in enumerate(there) if its == kind and line in lines]
    assert which < len(numbers), f"{function} has {len(numbers)} changes of the kind {kind!r}"
    return numbers[which]


def _rewritten(source: str, function: str, old: str, new: str) -> ast.Module:
    tree = ast.parse(source)
    owner = _function(tree, function)
    before, after = _code(old, new)
    places = [(node, field) for node in ast.walk(owner) for field in node._fields]
    done = 0
    for node, field in places:
        value = getattr(node, field)
        if isinstance(value, list):
            at = [i for i, one in enumerate(value) if _is(one, before)]
            for index in at:
                value[index : index + 1] = after
        elif at := [0] if _is(value, before) else []:
            setattr(node, field, after[0])
        done += len(at)
    assert done == 1, f"{old!r} is {done} times in {function}"
    return ast.fix_missing_locations(tree)


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    """name: may have that of its class before it."""
    owner, _, plain = name.rpartition(".")
    classes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == owner]
    among = ast.walk(classes[0] if owner else tree)
    nodes = [n for n in among if isinstance(n, ast.FunctionDef) and n.name == plain]
    assert len(nodes) == 1, f"{len(nodes)} functions are called {name}"
    return nodes[0]


def _code(*texts: str) -> list[list[ast.stmt]] | list[list[ast.expr]]:
    """Expressions, if all are, or statements."""
    bodies = [ast.parse(text).body for text in texts]
    values = [[one.value for one in body if isinstance(one, ast.Expr)] for body in bodies]
    return values if all(len(one) == 1 for one in values) else bodies


def _is(node: object, code: Sequence[ast.AST]) -> bool:
    return isinstance(node, ast.AST) and ast.dump(node) == ast.dump(code[0])


def functions(module: ModuleType) -> dict[str, FunctionType]:
    """Functions and methods that the module defines, by name."""
    found: dict[str, FunctionType] = {}
    for name, value in vars(module).items():
        its = vars(value) if isinstance(value, type) else {"": value}
        for inner, one in its.items():
            one = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
            here = getattr(one, "__module__", "") == module.__name__
            if (
                isinstance(one, FunctionType)
                and here
                and not one.__code__.co_filename.startswith("<")
            ):
                found[f"{name}.{inner}"] = one
    return found
