"""Where lies what a step counts, and how it goes on."""

import ast
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from trainmover.state.script.code.in_steps import steps_in
from trainmover.state.script.code.source import tree_of
from trainmover.state.script.counts import Counts

SCRIPT = """
import dataclasses
import functools
import torch

STEPS, STATE = 5, {"steps": 5}

class Job:
    def step(self, function):
        return function

job = Job()

def twice(function):
    @functools.wraps(function)
    def step(*args, **kwargs):
        function(*args, **kwargs)
        return function(*args, **kwargs)
    return step

@dataclasses.dataclass
class State:
    steps: int = 5

class Watched:
    def __init__(self):
        self.__dict__["steps"] = 5
    def __setattr__(self, name, value):
        raise AssertionError(name)

class Property:
    @property
    def steps(self):
        return 5
    @steps.setter
    def steps(self, value):
        raise AssertionError(value)

class Trainer:
    def __init__(self):
        self.steps, self.state, self.counts = 5, State(), {"steps": 5, "best": 1.0}

    @job.step
    def own(self, x):
        self.steps += 1

    @job.step
    def nested(self, x):
        self.state.steps += 1

    @job.step
    def entry(self, x):
        self.counts["steps"] += 1

@job.step
def a_global(x):
    global STEPS
    STEPS -= 1

@job.step
def given(x, one):
    one.steps += 1

@job.step
@twice
def decorated(x):
    STATE["steps"] += 1

def main():
    seen = 5
    @job.step
    def count(x):
        nonlocal seen
        seen += 8
    return count, lambda: seen
"""


@pytest.fixture
def script(tmp_path: Path) -> Any:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    module = ModuleType("train_that_counts")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # As dataclasses need it.
    exec(compile(SCRIPT, str(path), "exec"), vars(module))
    yield module
    del sys.modules[module.__name__]


def counts_of(script: Any) -> Counts:
    tree = tree_of(script.__file__)
    assert isinstance(tree, ast.Module)
    steps = steps_in([tree])
    return Counts(lambda: steps)


def go_on(script: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """As a step that is passed over. How much was counted."""
    found = counts_of(script).of(function, args, kwargs)
    for one in found:
        one.go_on()
    return len(found)


def test_it_is_counted_on_as_the_step_does(script: Any) -> None:
    one, other = script.Trainer(), script.Trainer()
    for step in ("own", "nested", "entry"):
        function = getattr(script.Trainer, step)
        assert go_on(script, function, one, 0) == 1
        function(other, 0)
    assert vars(one) == vars(other)
    assert go_on(script, one.own, 0) == 1  # A method that is bound.
    assert one.steps == 7
    assert go_on(script, script.a_global, 0) == 1
    assert script.STEPS == 4
    count, seen = script.main()
    assert go_on(script, count, x=0) == 1
    assert seen() == 13


def module_with(steps: Any) -> torch.nn.Module:
    module = torch.nn.Module()
    module.steps = steps
    return module


def test_it_is_found_in_what_is_given(script: Any) -> None:
    for one in (SimpleNamespace(steps=5), module_with(5), script.State()):
        assert go_on(script, script.given, 0, one=one) == 1
        assert one.steps == 6


@pytest.mark.parametrize("steps", [True, torch.zeros(1), None, "5"])
def test_what_is_no_number_is_no_count(script: Any, steps: Any) -> None:
    one = SimpleNamespace(steps=steps)
    assert not go_on(script, script.given, 0, one)
    assert one.steps is steps


def test_where_a_store_may_do_more_nothing_is_counted(script: Any) -> None:
    class Slots:
        __slots__ = ("steps",)

    slots = Slots()
    slots.steps = 5
    for one in (script.Watched(), script.Property(), slots, None):
        assert not go_on(script, script.given, 0, one)
    assert not go_on(script, script.given, 0)


def test_what_has_no_source_or_is_decorated_counts_nothing(script: Any) -> None:
    assert not go_on(script, script.decorated, 0)
    assert go_on(script, script.decorated.__wrapped__, 0) == 1
    partial = functools.partial(script.given, 0)
    for function in (len, partial, lambda x: None, test_each_is_noted_once):
        assert not go_on(script, function, 0, SimpleNamespace(steps=5))


def test_each_is_noted_once(script: Any) -> None:
    counts, trainer = counts_of(script), script.Trainer()
    for _ in range(3):
        counts.note(script.Trainer.own, (trainer, 0), {})
        counts.note(script.a_global, (0,), {})
    assert [one.name for one in counts.seen] == ["steps", "STEPS"]
    counts.forget()
    assert not counts.seen


MARKED = {
    "an attribute": (
        {"trainer.steps"},
        """
        class Trainer:
            def __init__(self):
                self.steps, self.seen = 0, 0
            @job.step
            def train(self, x):
                self.steps += 1
                self.seen += x[1]
        trainer = Trainer()
        for x in job.batches(DATA):
            trainer.train(x)
        print(trainer.steps, trainer.seen)
        """,
    ),
    "a global and an entry": (
        {"STEPS", "state"},
        """
        STEPS, state = 0, {"step": 0, "pass": 0}
        @job.step
        def train(x):
            global STEPS
            STEPS += 1
            state["step"] += 1
        for x in job.batches(DATA):
            train(x)
            state["pass"] += 1
        print(STEPS, state)
        """,
    ),
    "what goes with a tracked object": (
        {"own.steps"},
        """
        class Kept:
            def __init__(self):
                self.steps = 0
            def state_dict(self):
                return vars(self).copy()
            def load_state_dict(self, state):
                vars(self).update(state)
        kept, own = Kept(), types.SimpleNamespace(steps=0)
        job.tracked["kept"] = kept
        @job.step
        def train(x):
            kept.steps += 1
            own.steps += 1
        for x in job.batches(DATA):
            train(x)
            print(kept.steps, own.steps)
        """,
    ),
    "a variable of a function": (
        {"seen"},
        """
        def main():
            seen = 0
            @job.step
            def train(x):
                nonlocal seen
                seen += 1
            for x in job.batches(DATA):
                train(x)
            return seen
        main()
        """,
    ),
    "a dict that holds what cannot be sent": (
        set(),
        """
        state = {"step": 0, "of": object()}
        @job.step
        def train(x):
            state["step"] += 1
        for x in job.batches(DATA):
            train(x)
        print(state)
        """,
    ),
}
