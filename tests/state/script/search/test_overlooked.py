"""What changes in a script's objects though no line of it says so is found, and counts."""

from collections import deque
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import captures
import numpy
import pytest
import torch

from trainmover.state.script.comparison import all_in, path_of
from trainmover.state.script.overlooked import (
    EARLY,
    MARKED_MAX,
    WHOLE_EVERY,
    Overlooked,
    mark_of,
)
from trainmover.state.script.search.contents import LARGE
from trainmover.state.script.search.layout import Slot
from trainmover.state.script.values import entry_of

LIBRARY = """
def mover(averages):
    def move(by):
        for one in averages: one += by
    return move
"""
SCRIPT = """
import ctypes, movers
class Limited:
    def __init__(self, most):
        self.most = most
class Trainer:
    shared, started = [torch.zeros(2)], 0.0
    limited = Limited(3)
    def __init__(self):
        self.kept = {made}
        self.mover = movers.mover(self.kept)
        self.of_class = movers.mover(Trainer.shared)
        self.count, self.limit = 0, 3
    def step(self, x):
        {change}
trainer = Trainer()
for x, y in job.batches(DATA):
    trainer.step(x)
"""
TENSORS = "[torch.zeros(2), numpy.zeros(2)]"
CHANGES = [
    (TENSORS, "self.mover(float(x.sum()))"),
    (TENSORS, "float(x[0]) > 5 and self.mover(1)"),
    (TENSORS, "eval('self.kept[0].add_(x)')"),
    (TENSORS, "ctypes.memset(self.kept[0].data_ptr(), int(x[0]) + 1, 4)"),
    ("(torch.zeros(2),)", "self.mover(float(x.sum()))"),
    ("torch.zeros(1, 2)", "self.mover(float(x.sum()))"),
    (TENSORS, "self.of_class(float(x.sum()))"),
    (f"[numpy.zeros(1) for _ in range({LARGE + 1})]", "self.mover(float(x.sum()))"),
    (f"[numpy.zeros(1) for _ in range({LARGE + 1})]", "job.any(self.kept[0], x)"),
]
STORES = [
    ("exec('self.count += 1')", "trainer.count"),
    ("exec('Trainer.started = float(x[0])')", "Trainer.started"),
    ("getattr(self.limited, '__in' + 'it__')(float(x[0]))", "Trainer.limited.most"),
]
Run = Callable[[str, str], captures.Job]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(made: str, change: str) -> captures.Job:
        with captures.installed(tmp_path, monkeypatch, "movers", LIBRARY):
            monkeypatch.setattr(
                captures.Job, "any", lambda _, one, x: one.fill(x[0]), raising=False
            )
            script = SCRIPT.format(made=made, change=change)
            job = captures.run_in(tmp_path, script)
        return job

    return run


@pytest.mark.parametrize(("made", "change"), CHANGES, ids=[change for _, change in CHANGES])
def test_what_changes_unseen_is_named_from_then_on(run: Run, made: str, change: str) -> None:
    name = "Trainer.shared" if "of_class" in change else "trainer.kept"
    assert name in [one.name for one in run(made, change).differences()]


@pytest.mark.parametrize(("change", "name"), STORES)
def test_what_is_stored_unseen_is_named_from_then_on(run: Run, change: str, name: str) -> None:
    assert name in [one.name for one in run(TENSORS, change).differences()]


@pytest.mark.parametrize("made", [TENSORS, f"[numpy.zeros(1) for _ in range({LARGE + 1})]"])
def test_what_stays_is_not_read_again_and_again(run: Run, made: str) -> None:
    job = run(made, "job.any(numpy.zeros(2), x)")
    assert not job.differences()
    recorded = {path_of(key) for key in all_in(job.theirs[captures.RANK])[0]}
    assert not [path for path in recorded if path.endswith(".kept")]


def test_an_attribute_that_has_a_place_but_no_value_yet_counts_once_it_has_one(
    tmp_path: Path,
) -> None:
    script = """
    class Best:
        __slots__ = ("value",)
    best = Best()
    for x, y in job.batches(DATA):
        if x[0] > 4 and y:
            best.value = float(x.sum())
        elif x[0] > 7:
            print(best.value)
    """
    [found] = captures.run_in(tmp_path, script).differences()
    assert (found.name, found.theirs, found.own) == ("best.value", "20.0", "not set")


def test_an_object_may_become_one_of_another_class(tmp_path: Path) -> None:
    script = """
    class Warm:
        rate = 0.1
    class Main(Warm):
        rate = 1.0
    class Trainer:
        def __init__(self):
            self.phase = Warm()
        def step(self, x):
            if x[0] > 5:
                self.phase.__class__ = Main
            return x * self.phase.rate
    trainer = Trainer()
    for x, y in job.batches(DATA):
        trainer.step(x)
    """
    names = [one.name for one in captures.run_in(tmp_path, script).differences()]
    assert "trainer.phase.__class__" in names


def test_all_its_attributes_may_be_exchanged(tmp_path: Path) -> None:
    script = """
    class Phase:
        def __init__(self, rate):
            self.rate = rate
    phase, other = Phase(0.1), Phase(1.0)
    for x, y in job.batches(DATA):
        if x[0] > 5:
            phase.__dict__ = other.__dict__
        print(x * phase.rate)
    """
    names = [one.name for one in captures.run_in(tmp_path, script).differences()]
    assert "phase.rate" in names


CONFIG = """
level = 1.0
class Running:
    def __init__(self):
        self.kept = 0.0
    def __call__(self, x):
        self.kept += float(x.sum())
        return self.kept
def weight(x):
    global level
    level = level + float(x.sum())
    return level
running = Running()
"""


@pytest.mark.parametrize(("used", "name"), [("weight", "level"), ("running", "kept")])
def test_a_config_that_is_loaded_by_its_path_is_the_scripts(
    tmp_path: Path, used: str, name: str
) -> None:
    (tmp_path / "config_of_this.py").write_text(CONFIG)
    script = f"""
    import importlib.util
    def load(path):
        spec = importlib.util.spec_from_file_location("config", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return types.SimpleNamespace(**vars(module))
    config = load({str(tmp_path / "config_of_this.py")!r})
    for x, y in job.batches(DATA):
        print(config.{used}(x))
    """
    found = captures.run_in(tmp_path, script).differences()
    assert [one.name.rpartition(".")[2] for one in found] == [name]
    assert found[0].file == "config_of_this.py"


def test_a_distribution_is_what_it_was_made_with(tmp_path: Path) -> None:
    script = """
    from torch.distributions import Categorical, Normal
    class Policy:
        def __init__(self):
            self.prior, self.choice = Normal(torch.zeros(2), 1.0), Categorical(torch.ones(3))
        def step(self, x):
            self.prior = Normal(0.9 * self.prior.mean + x, 1.0)
            if x[0] > 5:
                print(self.choice.logits)
    policy = Policy()
    for x, y in job.batches(DATA):
        policy.step(x)
    """
    found = captures.run_in(tmp_path, script).differences()
    assert [one.name for one in found] == ["policy.prior"]


def test_a_private_attribute_with_a_place_counts(tmp_path: Path) -> None:
    script = """
    class _Best:
        __slots__ = ("__value",)
        def __init__(self):
            self.__value = 0.0
        def see(self, value):
            self.__value = max(self.__value, value)
    best = _Best()
    for x, y in job.batches(DATA):
        best.see(float(x.sum()))
    """
    [found] = captures.run_in(tmp_path, script).differences()
    assert (found.name, found.theirs, found.own) == ("best._Best__value", "20.0", "4.0")


def test_a_large_list_that_somebody_is_given_counts_once_it_has_changed(run: Run) -> None:
    job = run(f"[numpy.zeros(1) for _ in range({LARGE + 1})]", "job.any(self.kept[0], x)")
    first, then = ({path_of(key) for key in all_in(job.theirs[at])[0]} for at in (0, captures.RANK))
    assert "trainer.kept" in then - first


def _deep() -> list[object]:
    return [[torch.zeros(2)], {"a": [1.0]}, (numpy.zeros(3),), deque([2])]


PUT: list[tuple[Callable[[], object], Callable[[Any], object]]] = [
    (lambda: [torch.zeros(2)], lambda held: held[0].add_(1)),
    (lambda: torch.zeros(2), lambda held: held.fill_(3)),
    (lambda: numpy.zeros(2), lambda held: held.fill(3)),
    (lambda: [1.0, "a"], lambda held: held.append(2)),
    (lambda: [1.0, 2.0], lambda held: held.reverse()),
    (lambda: {"a": 1}, lambda held: held.update(a=2)),
    (lambda: {"a": torch.zeros(2)}, lambda held: held.update(a=torch.ones(2))),
    (lambda: (torch.zeros(2), 1), lambda held: held[0].sub_(1)),
    (lambda: [*range(200)], lambda held: held.append(0)),
    (_deep, lambda held: held[0][0].add_(1)),
    (_deep, lambda held: held[1]["a"].append(1)),
    (_deep, lambda held: held[2][0].fill(1)),
    (_deep, lambda held: held[3].append(1)),
]
LOOKS = range(EARLY + 1, WHOLE_EVERY - 1)
"""Of which none is one at what everything holds."""


@pytest.mark.parametrize("number", range(len(PUT)))
@pytest.mark.parametrize("last", [LOOKS[0], LOOKS[-1]])
def test_a_change_counts_from_the_next_fetch_on(number: int, last: int) -> None:
    made, change = PUT[number]
    held = {"kept": made()}
    slots = [Slot("kept", held, "kept", secret=False)]
    overlooked = Overlooked(lambda _, value: entry_of(value))
    assert not any(overlooked.look(slots) for _ in range(last))
    change(held["kept"])
    assert overlooked.look(slots)
    assert overlooked.counting == {"kept"}


def test_another_object_counts_from_the_next_fetch_on() -> None:
    held: dict[str, object] = {"kept": 1.0}
    slots = [Slot("kept", held, "kept", secret=False)]
    overlooked = Overlooked(lambda _, value: entry_of(value))
    assert not any(overlooked.look(slots) for _ in range(LOOKS[0]))
    held["kept"] = 2.0
    assert overlooked.look(slots)


def test_what_is_written_to_and_stays_the_same_is_compared_now_and_then_only() -> None:
    """As a list of what is trained: its content goes with the rank, and says nothing here."""
    trained = [torch.zeros(2)]
    asked = []

    def entry(_: Slot, value: object) -> object:
        asked.append(value)
        return 1

    overlooked = Overlooked(entry)
    slots = [Slot("kept", {"kept": trained}, "kept", secret=False)]
    for _ in range(2 * WHOLE_EVERY):
        trained[0].add_(1)
        assert not overlooked.look(slots)
    assert len(asked) == EARLY + 2


def test_of_many_some_are_compared_now_and_then_only() -> None:
    held = {f"{number}": [torch.zeros(1)] for number in range(MARKED_MAX + 1)}
    slots = [Slot(name, held, name, secret=False) for name in held]
    overlooked = Overlooked(lambda _, value: entry_of(value))
    assert not any(overlooked.look(slots) for _ in range(LOOKS[0]))
    held[f"{MARKED_MAX}"][0].add_(1)
    assert not overlooked.look(slots)
    assert overlooked.look(slots, whole=True) == [f"{MARKED_MAX}"]


@pytest.mark.parametrize(
    "value", [torch.zeros(2), numpy.array([None, 1]), {1, 2}, [[[[[1]]]]], [object()], None, [nan]]
)
def test_the_mark_of_what_stays_is_the_same(value: object) -> None:
    assert mark_of(value) == mark_of(value)


def test_what_was_made_to_infer_has_a_mark() -> None:
    with torch.inference_mode():
        value = [torch.zeros(2)]
    assert mark_of(value) == mark_of(value)


def test_a_function_may_get_the_code_of_another(tmp_path: Path) -> None:
    script = """
    def warm(x):
        return 0.1 * x
    def main(x):
        return 1.0 * x
    for x, y in job.batches(DATA):
        if x[0] > 5:
            warm.__code__ = main.__code__
        print(warm(x))
    """
    [found] = captures.run_in(tmp_path, script).differences()
    assert (found.name, found.theirs, found.own) == (
        "warm.__code__",
        "the code of main",
        "the code of warm",
    )
