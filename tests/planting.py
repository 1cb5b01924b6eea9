"""A bug of one line, planted in the code that runs, for as long as a `with` lasts.

The changed source is compiled, and every function of the module gets the code that it would have.
So whoever has imported one of them calls the changed one too.
"""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType


@contextmanager
def planted(module_name: str, old: str, new: str) -> Iterator[None]:
    """In trainmover, `old` stands as `new`. Fails if `old` is not there exactly once."""
    module = importlib.import_module(f"trainmover.{module_name}")
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {module_name}"
    changed = ModuleType(module.__name__)
    changed.__file__ = module.__file__
    exec(compile(source.replace(old, new), str(module.__file__), "exec"), changed.__dict__)
    ours, theirs = functions(module), functions(changed)
    before = {name: its.__code__ for name, its in ours.items()}
    try:
        for name, its in ours.items():
            its.__code__ = theirs[name].__code__
        yield
    finally:
        for name, its in ours.items():
            its.__code__ = before[name]


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
