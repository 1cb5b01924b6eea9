"""Rewritten programs do what the plain ones do, in the same order."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.loops.programs import Writer, run
from trainmover import loops
from trainmover.loops.rewrite import rewrite
from trainmover.loops.turns import plain_iterate, plain_repeat

PLAIN = SimpleNamespace(
    **{name: getattr(loops, name) for name in loops.__all__}
    | {"iterate": plain_iterate, "repeat": plain_repeat}
)


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_random_programs_leave_the_same_trace(first: int) -> None:
    for seed in range(first, first + 100):
        text = Writer(seed).program()
        plain = run(compile(text, "<program>", "exec"))
        rewritten = rewrite(text.encode(), "<program>")
        assert rewritten.reason == "", text
        assert run(rewritten.code) == plain, f"seed {seed}\n{text}"


def test_random_programs_leave_the_same_trace_with_the_python_reference() -> None:
    def prepare(names: dict[str, Any]) -> None:
        names["__tm__"] = PLAIN

    for seed in range(1000, 1100):
        text = Writer(seed).program()
        plain = run(compile(text, "<program>", "exec"))
        assert run(rewrite(text.encode(), "<program>").code, prepare) == plain, (
            f"seed {seed}\n{text}"
        )


def test_the_programs_reach_what_they_are_for() -> None:
    text = "\n".join(Writer(seed).program() for seed in range(100))
    for part in ("break", "continue", "return mark", "else:", "yield from", "finally:", "with "):
        assert part in text
    assert sys.getrecursionlimit() > 500
