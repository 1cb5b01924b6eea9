"""Plain values that a joiner's script has made otherwise are put as the rank has them."""

import runpy
import textwrap
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from captures import PRELUDE, Job, installed
from hypothesis import given
from hypothesis import strategies as st

from trainmover.state.script.comparison import all_in, path_of
from trainmover.state.script.putting import closed_in, put, stored, to_put
from trainmover.state.script.search.layout import Slot
from trainmover.state.script.things.libraries import is_of_library, kept_in
from trainmover.state.script.values import (
    COLLECTION_BYTES_MAX,
    PARTS_MAX,
    PLAIN_ITEMS_MAX,
    Fold,
    entry_of,
    same,
)

STOOD, LOST = 0, 2
"""Fetches: the first of the first pass, where the run parks, and that of the third."""

PASSES = """
    class Stopping:
        seen = 0
        def __init__(self):
            self.waited = 0
        def step(self, error):
            self.waited += error > 0.5
            Stopping.seen += 1
    best, stopping = 0.0, Stopping()
    def main():
        global best
        history, by_name, last, counts = [], {"error": [], "steps": 0}, None, collections.deque()
        recent = {"error": collections.deque(maxlen=2)}
        tensor, names = torch.zeros(2), set()
        def report():
            return last
        for data_pass in range(3):
            for x in job.batches(DATA[:1]):
                step(x[0]), print(best, report(), history, by_name, counts, tensor, names, recent)
            error = measured(data_pass)
            best, last = max(best, error), error
            history.append(error)
            by_name["error"].append(error)
            by_name["steps"] += 1
            counts.appendleft(error)
            tensor += error
            names.add(error), recent["error"].append(error)
            stopping.step(error)
    main()
    """


class Joiner(Job):
    """At its third pass it gets the values that the rank had there."""

    rank: Job

    def fetch(self, batches: Iterator[Any]) -> Any:
        if len(self.own) == STOOD:
            self.variables.note_closed()
        if len(self.own) == 2 * LOST:
            theirs, own = self.rank.theirs[2 * LOST], self.variables.capture(full=True)
            self.before = self.variables.comparison.differences(theirs, own)
            history = [self.rank.theirs[STOOD], theirs]
            changed = stored([all_in(one)[0] for one in history])
            self.foreseen = changed & self.variables.could_be_put(own, theirs)
            self.was_put = self.variables.put(theirs, own, [self.own[STOOD], own], history)
            self.after = self.variables.comparison.differences(
                theirs, self.variables.capture(full=True)
            )
        return super().fetch(batches)


TOY_LIBRARY = """
import torch

class Stopper:
    def __init__(self):
        self.seen = [0]
    def best(self, value):
        self.seen.append(max(self.seen[-1], value))
        return self.seen[-1]

class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.reset()
        self.size, self.where, self.show = 3, torch.device("cpu"), print
    def reset(self):
        self.total, self.count = torch.zeros(()), 0
    def update(self, value):
        self.total, self.count = self.total + value, self.count + 1
        self.show, self.where = print, self.total.device
"""


def _measuring(measured: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One function of the script's, whatever it measures."""
    return lambda number: measured(number)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`toy_library`, which is installed."""
    with installed(tmp_path, monkeypatch, "toy_library", TOY_LIBRARY):
        yield


@pytest.fixture
def joined(tmp_path: Path, library: None) -> Callable[..., Joiner]:
    """A rank and a joiner of one script, whose measurements are not the same."""
    path = tmp_path / "train.py"

    def is_own(file: str) -> bool:
        return file == str(path)

    def run(script: str, theirs: Any, own: Any) -> Joiner:
        path.write_text(PRELUDE + textwrap.dedent(script))
        rank = Job(is_own)
        joiner = Joiner(is_own)
        joiner.rank = rank
        for job, measured in ((rank, theirs), (joiner, own)):
            known = {"job": job, "measured": _measuring(measured), "print": lambda *_: None}
            runpy.run_path(str(path), known, run_name="__main__")
        return joiner

    return run


def test_what_lines_between_passes_have_made_is_put(joined: Callable[..., Joiner]) -> None:
    """In globals, locals, cells, attributes of objects and classes, and in collections."""
    joiner = joined(PASSES, lambda number: 0.6 + number, lambda number: 0.1 * number)
    names = {one.name for one in joiner.before}
    assert names == {"best", "last", "history", "by_name", "counts", "tensor", "names"} | {
        "recent",
        "stopping.waited",
    }
    assert joiner.was_put
    assert joiner.was_put <= joiner.foreseen
    assert joiner.after == []


COUNTED = """
    class Counts:
        steps = passes = 0
    counts = Counts()
    def counted(x):
        counts.steps += 1
    marked = job.step(counted)
    for number, x in enumerate(job.batches(DATA)):
        counts.passes += 1
        marked(x), print(counts.passes, number)
    """


def test_what_a_step_stores_to_or_a_loop_reads_is_not_foreseen_to_be_put(
    joined: Callable[..., Joiner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "step", lambda self, function: function, raising=False)
    joiner = joined(COUNTED, id, id)
    assert {path_of(key) for key in joiner.foreseen} == {"counts.passes"}


def test_what_only_real_runs_store_is_not_foreseen_to_be_put(
    joined: Callable[..., Joiner],
) -> None:
    """Lines that are run again on the way do not make it again."""
    script = """
    def main():
        total = every = 0.0
        for x in job.batches(DATA):
            every += len(x)
            if not job.is_shadow:
                total += len(x)
        print(total, every)
    main()
    """
    assert {path_of(key) for key in joined(script, id, id).foreseen} == {"every"}


IN_FLIGHT = """
    def own(number):
        at = 0
        while at < number:
            yield at
            at += 1
    def main():
        it, many = job.batches(DATA), 2
        for data_pass in range(3):
            for _ in range(many):
                step(next(it)[0])
                step(next(it)[0])
                break
            many = measured(data_pass)
    main()
    """


@pytest.mark.parametrize(
    "loop", ["range(many)", "zip(range(many), 'abc')", "own(many)", "(0, 0, 0)[:many]"]
)
def test_what_is_put_a_loop_that_has_begun_does_not_see(
    joined: Callable[..., Joiner], loop: str
) -> None:
    script = IN_FLIGHT.replace("range(many)", loop, 1)
    joiner = joined(script, lambda number: 3, lambda number: 2)
    assert joiner.was_put
    assert [one.name for one in joiner.after] == [f"rounds over {loop}"]


def test_what_all_have_alike_is_let_alone(joined: Callable[..., Joiner]) -> None:
    joiner = joined(PASSES, lambda number: 0.5, lambda number: 0.5)
    assert joiner.before == []
    assert not joiner.was_put


def test_what_was_another_from_the_start_is_not(joined: Callable[..., Joiner]) -> None:
    """A port, the number of a file: it is this machine's."""
    script = """
        def main():
            port = measured(-1)
            for data_pass in range(3):
                for x in job.batches(DATA[:1]):
                    step(x[0] + port)
        main()
        """
    joiner = joined(script, lambda number: 4000, lambda number: 5000)
    assert [one.name for one in joiner.before] == ["port"]
    assert not joiner.was_put
    assert joiner.after == joiner.before


def test_objects_of_libraries_that_stay_keep_nothing_back(joined: Callable[..., Joiner]) -> None:
    script = """
        from toy_library import Stopper
        stopper = Stopper()
        def main():
            best = 0
            for data_pass in range(3):
                for x in job.batches(DATA[:1]):
                    step(x[0] + best)
                best = measured(data_pass)
        main()
        """
    joiner = joined(script, lambda number: 1 + number, lambda number: 5 * number)
    assert [one.name for one in joiner.before] == ["best"]
    assert joiner.after == []


def test_a_metric_of_a_library_gets_what_the_ranks_had(joined: Callable[..., Joiner]) -> None:
    script = """
        from toy_library import Mean
        metric = Mean()
        def main():
            for data_pass in range(3):
                for x in job.batches(DATA[:1]):
                    step(x[0] + metric.total)
                metric.update(measured(data_pass))
        main()
        """
    joiner = joined(script, lambda number: 1.0 + number, lambda number: 5.0 * number)
    assert [one.name for one in joiner.before] == ["metric"]
    assert joiner.after == []


@pytest.mark.usefixtures("library")
def test_what_a_metric_of_a_library_keeps() -> None:
    from toy_library import Mean  # type: ignore[import-not-found]

    assert kept_in(Mean()) == {"total", "count"}
    assert kept_in(torch.nn.Linear(1, 1)) == kept_in([]) == set()
    assert kept_in(torch.nn.Module.__new__(Mean)) == set()
    assert is_of_library(Mean)
    assert not any(map(is_of_library, (int, torch.Tensor, torch.nn.Linear, Slot, Job)))


NOT_PUT = {
    "the target of a loop": """
        def main():
            for value in measured(0):
                for x in job.batches(DATA[:1]):
                    step(x[0] + value)
        main()
        """,
    "an attribute that is one": """
        def main():
            at = types.SimpleNamespace()
            for at.value in measured(0):
                for x in job.batches(DATA[:1]):
                    step(x[0] + at.value)
        main()
        """,
    "a part that is one": """
        def main():
            at = {}
            for at["value"] in measured(0):
                for x in job.batches(DATA[:1]):
                    step(x[0] + at["value"])
        main()
        """,
    "a global that is one": """
        def main():
            global value
            for value in measured(0):
                for x in job.batches(DATA[:1]):
                    step(x[0] + value)
        main()
        """,
    "what is no plain value": """
        def main():
            held = [torch.zeros(2)]
            for data_pass in range(3):
                for x in job.batches(DATA[:1]):
                    step(x[0] + held[0])
                held = [torch.full((2,), float(measured(0)[data_pass]))]
        main()
        """,
    "beside an object of a library that cannot be looked at": """
        import msgspec
        counter = msgspec.msgpack.Decoder()
        def main():
            best = 0
            for data_pass in range(3):
                for x in job.batches(DATA[:1]):
                    step(x[0] + best)
                best = measured(0)[data_pass] + (counter is None)
        main()
        """,
    "beside one that changes": """
        from toy_library import Stopper
        stopper = Stopper()
        def main():
            best = 0
            for data_pass in range(3):
                for x in job.batches(DATA[:1]):
                    step(x[0] + best)
                best = stopper.best(measured(0)[data_pass])
        main()
        """,
    "beside a thread": """
        import threading
        over = threading.Event()
        threads = [threading.Thread(target=lambda: over.wait(), daemon=True)]
        threads[0].start()
        def main():
            best = 0
            for data_pass in range(3):
                for x in job.batches(DATA[:1]):
                    step(x[0] + best)
                best = measured(0)[data_pass]
        main()
        over.set()
        threads[0].join()
        """,
}


@pytest.mark.parametrize("name", NOT_PUT)
def test_what_may_show_something_else_is_refused(joined: Callable[..., Joiner], name: str) -> None:
    joiner = joined(NOT_PUT[name], lambda number: [1, 2, 3], lambda number: [4, 5, 6])
    assert joiner.before
    assert joiner.after == joiner.before


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        ([1.0], [2.0, -0.0, float("nan")]),
        ({"a": [1], "b": 2}, {"b": 3, "a": [1, 2], "c": None}),
        ({1, 2}, {3}),
        ({"a": deque([1])}, {"a": deque([2, 3]), "b": deque(maxlen=2)}),
        (deque([1], maxlen=3), deque([4, 5], maxlen=3)),
        ([numpy.float32(1)], [numpy.float32(2), numpy.float64(3)]),
        (torch.zeros(2), torch.tensor([1.0, float("nan")])),
        (numpy.zeros(2), numpy.array([1.0, float("nan")])),
        (torch.zeros(()), torch.tensor(2.0)),
        ([(1, 2.0)], [(1, 2.0), (2, 3.0)]),
        ([{"loss": 1.0}], [{"loss": 2.0}, {"loss": 3.0, "name": "x"}]),
        ([[1], [2]], [[1, 2]]),
        (defaultdict(list, a=[1]), defaultdict(list, a=[1, 2], b=[3])),
        ({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}}),
        (Counter("ab"), Counter("abbc")),
        (OrderedDict(a=[1]), OrderedDict(b=[2], a=[3])),
    ],
)
def test_a_collection_stays_the_object_that_others_hold(own: Any, theirs: Any) -> None:
    held, other = {"x": own}, own
    inner = own["a"] if type(own) is dict else None
    wanted = to_put({"x": entry_of(theirs)}, {"x": entry_of(own)}, {"x"})
    put(Slot("x", held, "x", secret=False), None, own, wanted["x"])
    assert held["x"] is other
    assert same(entry_of(other), entry_of(theirs))
    assert type(own) is not dict or own["a"] is inner


def test_what_is_one_here_and_was_two_is_stored_anew() -> None:
    own = [1.0]
    held = {"all": own, "newest": own}
    put(Slot("all", held, "all", secret=False), None, own, [1.0, 2.0], is_one=False)
    assert held == {"all": [1.0, 2.0], "newest": [1.0]}


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (None, [1, 2]),
        ((1,), (1, 2)),
        ([1], None),
        (2, 2.0),
        (1.0, numpy.float64(2)),
        (numpy.zeros(2), numpy.zeros(3)),
    ],
)
def test_what_is_another_object_is_stored(own: Any, theirs: Any) -> None:
    held = {"x": own}
    wanted = to_put({"x": entry_of(theirs)}, {"x": entry_of(own)}, {"x"})
    put(Slot("x", held, "x", secret=False), None, own, wanted["x"])
    assert same(entry_of(held["x"]), entry_of(theirs))
    assert type(held["x"]) is type(theirs)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.builds(numpy.float32),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(deque)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.sets(st.integers() | st.text(), max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip


@given(values)
def test_what_has_a_content_can_be_made_of_it_and_nothing_raises(value: Any) -> None:
    entry = entry_of(value)
    if type(entry) is list and len(entry) > 2:
        made = to_put({"x": entry}, {"x": "another"}, {"x"})["x"]
        assert type(made) is type(value)
        assert same(entry_of(made), entry)


def test_what_a_library_keeps_harms_nobody_who_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that are none, and what another thread changes meanwhile."""
    value = type("Writer", (), {"__module__": "a_library"})()
    value.held = "\ud800"
    [one] = closed_in([{"writer": value}, 1]).values()
    assert one.value is value
    assert one.seen

    def changing(fold: Fold, value: object) -> Any:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(Fold, "of", changing)
    [one] = closed_in([{"writer": value}, 1]).values()
    assert not one.seen


def test_an_array_that_cannot_be_written_to_is_left_as_it_is() -> None:
    own = numpy.zeros(2)
    own.flags.writeable = False
    held = {"x": own}
    put(Slot("x", held, "x", secret=False), None, own, numpy.ones(2))
    assert own.sum() == 0
    assert held["x"].sum() == 2


@pytest.mark.parametrize(
    "value",
    [
        [1.0] * (COLLECTION_BYTES_MAX // 9 + 1),
        [1] * (PLAIN_ITEMS_MAX + 1),
        [[1] for _ in range(PARTS_MAX + 1)],
        [torch.zeros(1)],
        {"a": {"b": {"c": 1}}},
        {torch.float: 1},
        torch.zeros(1, requires_grad=True),
        torch.zeros(1000),
        torch.eye(2).to_sparse(),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.ones(2).to_mkldnn(),
        torch.zeros(2, device="meta"),
        numpy.zeros(2, dtype=[("loss", float), ("step", int)]),
        numpy.zeros(2, dtype=object),
        ["\ud800"],
        object(),
    ],
)
def test_what_is_large_or_shared_does_not_tell_its_content(value: object) -> None:
    entry = entry_of(value)
    assert type(entry) is not list or len(entry) == 2


def test_a_secret_does_not_tell_its_content() -> None:
    assert len(entry_of(["word"], secret=True)) == 2


def test_stored_is_what_has_changed_from_one_capture_to_a_later_one() -> None:
    first, later, last = {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 1, "c": 2}
    assert stored([first, later, last]) == {"b", "c"}
    assert stored([first], [later], []) == set()
