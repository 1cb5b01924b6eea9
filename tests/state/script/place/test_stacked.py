"""The iterators of the loops that a frame is in, read from its stack."""

import asyncio
import contextlib
import itertools
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import captures
import pytest

from trainmover.state.script.place.liveness import live_at
from trainmover.state.script.place.stacked import address_at, levels
from trainmover.state.script.things.readers import ITERATORS
from trainmover.state.script.things.things import Things
from trainmover.state.script.values import entry_of

KINDS = {*map(id, ITERATORS)}
PLACES = {
    "a function": """
        def run(a, *rest, b=None, **others):
            for x in a:
                for y in b:
                    look(sys._getframe())
    """,
    "cells, and a lambda": """
        def run(a, b):
            kept, seen = 3, lambda: (a, kept)
            for x in a:
                for y in b:
                    look(sys._getframe())
            return seen
    """,
    "a generator": """
        def run(a, b):
            def drawn(number):
                for x in a:
                    for y in b:
                        look(sys._getframe())
                        yield number
            next(drawn(3)), next(drawn(4))
    """,
    "a coroutine": """
        def run(a, b):
            async def drawn():
                for x in a:
                    for y in b:
                        look(sys._getframe())
            asyncio.run(drawn())
    """,
    "a context, and what ends it": """
        def run(a, b):
            with open(os.devnull) as one, open(os.devnull) as another:
                for x in a:
                    with open(os.devnull):
                        try:
                            for y in b:
                                look(sys._getframe())
                        finally:
                            one.close()
    """,
    "what handles an error": """
        def run(a, b):
            for x in a:
                try:
                    raise ValueError
                except ValueError as error:
                    for y in b:
                        look(sys._getframe())
    """,
    "an expression under way": """
        def run(a, b):
            for x in a:
                for y in b:
                    [1, (2, {"at": look(sys._getframe(), *[one for one in "ab" if one])})]
    """,
    "a class": """
        def run(a, b):
            class Made:
                for x in a:
                    for y in b:
                        look(sys._getframe())
    """,
}
BESIDE = """
    def run(a, b):
        for x in range(3):
            pass
        for x in a:
            for y in [one for one in (1, 2)]:
                match x:
                    case 1: pass
                    case _: continue
            while True:
                for y in b:
                    look(sys._getframe())
                    break
                break
"""


def around(frame: FrameType) -> list[int]:
    """Of the loops that it is in, outermost first."""
    code = frame.f_code
    loops = [offset for offset, _ in live_at(code, frame.f_lasti).loops]
    return [address_at(frame, levels(code)[offset]) for offset in loops]


@pytest.mark.parametrize("place", [*PLACES, "loops beside"])
def test_they_are_where_the_code_has_put_them(place: str) -> None:
    seen: list[Any] = []
    a, b = iter([1, 2]), itertools.cycle("ab")

    def look(frame: FrameType, *_: object) -> None:
        if len(seen) < 9:
            seen.append(around(frame))
        else:
            raise KeyboardInterrupt

    names: dict[str, Any] = {"look": look, "sys": sys, "asyncio": asyncio, "os": os}
    exec(textwrap.dedent(PLACES.get(place, BESIDE)), names)
    with contextlib.suppress(KeyboardInterrupt):
        names["run"](a, b=b)
    assert seen
    assert seen == [[id(a), id(b)]] * len(seen)


@pytest.mark.parametrize("made", [iter, lambda one: iter((*one,)), reversed, zip])
def test_what_comes_next_counts_and_what_has_been_does_not(made: Callable[[Any], Any]) -> None:
    def entry(values: list[float]) -> Any:
        iterator = made(values)
        next(iterator)
        return entry_of(iterator, things=Things())

    if made is reversed:
        assert entry([0.5, 1.0, 2.0]) == entry([0.5, 1.0, 3.0]) != entry([1.5, 1.0, 2.0])
    else:
        assert entry([0.5, 1.0, 2.0]) == entry([1.5, 1.0, 2.0]) != entry([0.5, 1.0, 3.0])


LATER = {
    "an asynchronous generator": """
        async def plan():
            for weight in [1.0] * 30:
                yield weight
        async def train():
            weights = plan()
            for x, y in job.batches(DATA):
                step(x * await anext(weights))
        asyncio.run(train())
    """,
    "a coroutine that is not done": """
        async def plan(told):
            for weight in [1.0] * 30:
                told.append(weight)
                await asyncio.sleep(0)
        async def train():
            told = []
            weights = plan(told)
            for x, y in job.batches(DATA):
                weights.send(None)
                told.clear()
        asyncio.run(train())
    """,
}


@pytest.mark.parametrize("kind", LATER)
def test_how_far_the_loops_of_what_goes_on_later_are_counts(tmp_path: Path, kind: str) -> None:
    job = captures.run_in(tmp_path, "        import asyncio\n" + LATER[kind])
    assert [one.name for one in job.differences(joiner=2, rank=7)] == ["weights"]
    assert job.differences(joiner=2, rank=2) == []


def test_frames_of_a_function_that_calls_itself_have_variables_of_their_own(
    tmp_path: Path,
) -> None:
    script = """
        batches = iter(job.batches(DATA))
        def descend(level, gain):
            scale = 0.5 * gain
            if level:
                found = descend(level - 1, 1.0)
            else:
                x, y = next(batches)
                found = step(x).item()
            return scale + found
        def main():
            while len(job.own) < 12:
                gain = descend(2, float(len(job.own)))
        main()
    """
    job = captures.run_in(tmp_path, script)
    found = [one for one in job.differences(joiner=2, rank=7) if one.name == "scale"]
    assert [(one.theirs, one.own) for one in found] == [("3.5", "1.0")]
    text = (tmp_path / "train.py").read_text().splitlines()
    assert text[found[0].line - 1].strip() == "scale = 0.5 * gain"
