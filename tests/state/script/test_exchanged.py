"""A variable that stands for another one of a kind later, or for nothing: it is another, where a
local, an attribute or a list has it. What is made anew each time and is equal is the same."""

import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
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
    @torch.jit.script
    def plain(x):
        return x.mean()
    @torch.jit.script
    def squared(x):
        return x.square().mean()
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
    "functions of numpy's": ("np.mean", "np.median"),
    "functions over elements": ("np.sin", "np.cos"),
    "functions of one name": ("math.sin", "cmath.sin"),
    "reductions": ("np.add.reduce", "np.multiply.reduce"),
    "functions that numpy makes": ("np.frompyfunc(abs, 1, 1)", "np.frompyfunc(max, 2, 1)"),
    "methods of tensors": ("torch.Tensor.abs", "torch.Tensor.square"),
    "methods of Python's": ("str.upper", "str.lower"),
    "methods of a text": ("'a'.join", "'b'.join"),
    "makers of a class": ("dict.fromkeys", "collections.OrderedDict.fromkeys"),
    "which entry": ("operator.itemgetter(0)", "operator.itemgetter(1)"),
    "which attribute": ("operator.attrgetter('a.b')", "operator.attrgetter('a.c')"),
    "which method": (
        "operator.methodcaller('mean', dim=0)",
        "operator.methodcaller('mean', dim=1)",
    ),
    "operators": ("torch.ops.aten.relu", "torch.ops.aten.silu"),
    "overloads": ("torch.ops.aten.add.Tensor", "torch.ops.aten.add.Scalar"),
    "compiled functions": ("plain", "squared"),
    "kinds of elements": ("np.dtype('f4')", "np.dtype('f8')"),
    "fields of a record": ("np.dtype([('a', 'f4')])", "np.dtype([('b', 'f4')])"),
    "patterns": ("re.compile('^a')", "re.compile('^b')"),
    "flags of a pattern": ("re.compile('a')", "re.compile('a', re.I)"),
    "searches": ("re.compile('^a').search", "re.compile('^b').search"),
    "layouts": ("torch.strided", "torch.sparse_coo"),
    "formats of memory": ("torch.channels_last", "torch.contiguous_format"),
}
ALIKE: list[str] = [
    *("UNSET", "object()", "threading.Condition()", "..."),
    *("np.mean", "np.sin", "torch.Tensor.abs", "operator.methodcaller('mean', dim=0)", "plain"),
    *("torch.ops.aten.relu", "np.dtype([('a', 'f4')])", "re.compile('^a').search", "'a'.join"),
]


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
    assert of(numpy.mean) == "the function mean"
    assert of(re.compile("^a")) == "re.compile('^a')"
    assert of(torch.ops.aten.relu) == "aten.relu"


def test_methods_of_one_generator_are_others() -> None:
    assert entry_of(numpy.random.rand) != entry_of(numpy.random.randn)
    assert entry_of(numpy.random.rand) == entry_of(numpy.random.rand)
