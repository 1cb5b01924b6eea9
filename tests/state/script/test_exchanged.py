"""A variable that stands for another one of a kind later, or for nothing: it is another, where a
local, an attribute or a list has it. What is made anew each time and is equal is the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist
from captures import JOINER, RANK, Job

from trainmover.state.script.fold import kinds
from trainmover.state.script.putting import to_put
from trainmover.state.script.values import NO_VALUE, entry_of, shown

LOCAL = """
    def main():
        kept = {before}
        for x, y in job.batches(DATA):
            use(kept, x)
            if x[0] == 6:
                kept = {after}
    """
ATTRIBUTE = """
    class Run:
        def __init__(self):
            self.kept = {before}
        def go_on(self, x):
            use(self.kept, x)
            if x[0] == 6:
                self.kept = {after}
    def main():
        run = Run()
        for x, y in job.batches(DATA):
            run.go_on(x)
    """
LISTED = """
    def main():
        kept = [{before}]
        for x, y in job.batches(DATA):
            use(kept, x)
            if x[0] == 6:
                kept[0] = {after}
    """
PLACES = {"local": LOCAL, "attribute": ATTRIBUTE, "listed": LISTED}
BEGIN = """
    import decimal, fractions, math, cmath, operator, re, statistics, string, threading
    import torch.distributions as laws
    import numpy as np
    UNSET = object()
    class Mark:
        pass
    def use(*_):
        pass
    """
EXCHANGED: dict[str, tuple[str, str]] = {
    "nothing, then a sentinel": ("None", "UNSET"),
    "a sentinel, then a number": ("UNSET", "float(x[0])"),
    "a sentinel, then nothing": ("UNSET", "None"),
    "a number, then an object of Python's": ("1.0", "threading.Condition()"),
    "one class, then another": ("threading.Condition()", "threading.Barrier(2)"),
    "an ellipsis, then a slot": ("...", "NotImplemented"),
}
ALIKE: list[str] = ["UNSET", "object()", "threading.Condition()", "..."]


def exchanged(place: str, before: str, after: str) -> str:
    return BEGIN + PLACES[place].format(before=before, after=after) + "\n    main()\n"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("habit", EXCHANGED)
def test_another_one_is_another(run: Callable[[str], Job], habit: str, place: str) -> None:
    job = run(exchanged(place, *EXCHANGED[habit]))
    assert job.differences(), "nothing is found"
    assert job.variables.comparison.differences(job.theirs[JOINER], job.own[JOINER]) == []


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("made", ALIKE)
def test_one_that_is_equal_is_the_same(run: Callable[[str], Job], made: str, place: str) -> None:
    assert run(exchanged(place, made, made)).differences() == []


def test_a_type_says_not_all_of_a_value() -> None:
    """So nothing is put in its place."""
    assert to_put({"a": 1.0}, {"a": entry_of(object())}, {"a"}) == {}
    assert to_put({"a": entry_of(object())}, {"a": 1.0}, {"a"}) == {}


def test_what_a_rank_has_otherwise_than_a_run_in_the_sandbox_tells_no_type() -> None:
    """Handles of collectives, and all that is the job's own."""

    class Ours:
        __module__ = "trainmover.worker"

    class Pending(dist.Work):
        pass

    for one in (Ours(), Pending(), dist.HashStore()):
        assert entry_of(one) is NO_VALUE
        assert kinds.name_of(type(one)) == ""
    assert entry_of([Pending()]) == entry_of([Ours()])


def test_whether_something_only_shows_is_no_difference() -> None:
    class Bar:
        __module__ = "tqdm.std"

    class Writer:
        __module__ = "torch.utils.tensorboard.writer"

    assert entry_of(Bar()) is NO_VALUE
    assert entry_of(Writer()) is NO_VALUE


def test_what_cannot_be_read_hides_itself_alone(run: Callable[[str], Job]) -> None:
    job = run("""
        import io
        def main():
            text = io.StringIO()
            kept = {"text": text, "scale": 1.0}
            alone = io.StringIO()
            for x, y in job.batches(DATA):
                use = kept, alone.closed
                kept["text"].close()
                kept["scale"] += float(x[0])
                if x[0] == 6:
                    alone.close()
        main()
        """)
    found = {one.name: one for one in job.differences()}
    assert {"kept", "alone"} <= found.keys()
    assert found["alone"].theirs == "a StringIO that cannot be read"
    assert job.variables.comparison.differences(job.theirs[RANK], job.own[RANK]) == []


def test_another_type_is_named() -> None:
    def of(value: object) -> Any:
        return shown(entry_of(value))

    assert of(object()) == "a object"
