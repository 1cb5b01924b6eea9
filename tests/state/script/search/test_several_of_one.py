"""Several functions or classes that one line makes keep a value each; so does a function behind a
decorator of a library's."""

from pathlib import Path

import captures
import pytest

AVERAGED = {
    "closures": """
        def averaged():
            mean = 1.0
            def add(value):
                nonlocal mean
                mean = 0.9 * mean + value
                return mean
            return add
        one, other = averaged(), averaged()
    """,
    "cells that hold a list": """
        def averaged():
            kept = [1.0]
            def add(value):
                kept[0] = 0.9 * kept[0] + value
                return kept[0]
            return add
        one, other = averaged(), averaged()
    """,
    "defaults": """
        def averaged():
            def add(value, kept=[1.0]):
                kept[0] = 0.9 * kept[0] + value
                return kept[0]
            return add
        one, other = averaged(), averaged()
    """,
    "attributes of functions": """
        def averaged():
            def add(value):
                add.mean = 0.9 * add.mean + value
                return add.mean
            add.mean = 1.0
            return add
        one, other = averaged(), averaged()
    """,
    "attributes of classes": """
        def made():
            class Meter:
                mean = 1.0
                @classmethod
                def add(cls, value):
                    cls.mean = 0.9 * cls.mean + value
            return Meter
        one, other = made().add, made().add
    """,
    "functions under one decorator": """
        import functools
        def smoothed(function):
            mean = 1.0
            @functools.wraps(function)
            def inner(value):
                nonlocal mean
                mean = 0.9 * mean + function(value)
                return mean
            return inner
        @smoothed
        def one(value):
            return value
        @smoothed
        def other(value):
            return 2 * value
    """,
}


@pytest.mark.parametrize("which", ["one", "other"])
@pytest.mark.parametrize("kind", AVERAGED)
def test_each_of_several_is_a_variable(kind: str, which: str, tmp_path: Path) -> None:
    job = captures.run_in(
        tmp_path,
        AVERAGED[kind]
        + f"""
        def main():
            for x, y in job.batches(DATA):
                {which}(float(x.sum()))
        main()
        """,
    )
    found = job.differences()
    assert len(found) == 1
    assert found[0].file == "train.py"
    assert found[0].line


@pytest.mark.parametrize(
    "decorator", ["torch.no_grad()", "functools.singledispatch", "contextlib.contextmanager"]
)
def test_an_attribute_of_a_function_behind_a_librarys_decorator(
    decorator: str, tmp_path: Path
) -> None:
    job = captures.run_in(
        tmp_path,
        f"""
        import contextlib, functools
        @{decorator}
        def damped(x):
            return damped.mean
        damped.mean = 1.0
        def main():
            for x, y in job.batches(DATA):
                damped.mean = 0.9 * damped.mean + float(x.sum())
                damped(x)
        main()
        """,
    )
    assert [one.name for one in job.differences()] == ["damped.mean"]


MANAGERS = {
    "in a variable": "manager.__exit__(None, None, None)\n    manager = eased()\n"
    "    manager.__enter__()",
    "in a stack": "stack.enter_context(eased())",
}


@pytest.mark.parametrize("where", MANAGERS)
def test_what_a_context_manager_keeps_until_it_is_left(where: str, tmp_path: Path) -> None:
    job = captures.run_in(
        tmp_path,
        f"""
import contextlib
scale, stack = 1.0, contextlib.ExitStack()
@contextlib.contextmanager
def eased():
    before = scale
    yield
    print(before)
manager = eased()
manager.__enter__()
for number, (x, y) in enumerate(job.batches(DATA)):
    scale = 1.0 + number
    {MANAGERS[where]}
""",
    )
    assert any(one.name.endswith(".gen") for one in job.differences())
