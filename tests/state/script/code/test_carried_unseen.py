"""What runs a function, keeps it from running, or exchanges an object, though no call shows it."""

import ast
import textwrap

import pytest

from trainmover.state.script.code.carried import carried_attributes

SELDOM = """
class Every:
    def __init__(self, number):
        self.number, self.calls = number, 0
    def __call__(self, function):
        def wrapped(*given):
            self.calls += 1
            if self.calls % self.number == 0:
                return function(*given)
        return wrapped
def every(number, function):
    return Every(number)(function)
seldom = Every(6)
class Policy:
    {decorator}
    def refresh(self, value):
        self.level = value
    def leave(self, value):
        pass
    def use(self, value):
        self.refresh(value)
        return self.level
    {more}
class Other(Policy):
    {override}
{behind}
policy = Policy()
while True:
    policy.use(next(batches))
"""
NOTHING = {"decorator": "", "more": "", "override": "pass", "behind": ""}
MAY_NOT_RUN = [
    {"decorator": "@Every(6)"},
    {"decorator": "@seldom"},
    {"more": "refresh = every(6, refresh)"},
    {"override": "refresh = Policy.leave"},
    {"override": "refresh = lambda self, value: None"},
    {"behind": "Policy.refresh = Every(6)(Policy.refresh)"},
    {"behind": "setattr(Policy, 'refresh', Every(6)(Policy.refresh))"},
]
RUNS = [
    {},
    {"decorator": "@torch.no_grad()"},
    {"behind": "Policy.refresh = torch.compile(Policy.refresh)"},
    {"more": "size = every(6, len)"},
]


def _carried(text: str) -> frozenset[str]:
    return carried_attributes((ast.parse(textwrap.dedent(text)),))


def _is_level_carried(changed: dict[str, str]) -> bool:
    text = SELDOM.format(**NOTHING | changed)
    return "level" in _carried("import torch\n" + text)


@pytest.mark.parametrize("changed", MAY_NOT_RUN, ids=str)
def test_a_function_that_something_may_keep_from_running_writes_nothing(
    changed: dict[str, str],
) -> None:
    assert _is_level_carried(changed)


@pytest.mark.parametrize("changed", RUNS, ids=str)
def test_others_run(changed: dict[str, str]) -> None:
    assert not _is_level_carried(changed)


QUIET = """
import contextlib
from contextlib import ExitStack, contextmanager, suppress, suppress as ignoring
class Skipping(suppress):
    pass
class Guard:
    def __enter__(self): return self
    def __exit__(self, *error): return True
@contextmanager
def quietly():
    with suppress(ValueError):
        yield
def made():
    return suppress(ValueError)
{before}
class State:
    def use(self, value):
        {lines}
        return self.level
state = State()
while True:
    state.use(next(batches))
"""
WRITES = "with {}: self.level = risky(value)"


@pytest.mark.parametrize(
    ("before", "manager"),
    [
        ("", "contextlib.suppress(ValueError)"),
        ("", "ignoring(ValueError)"),
        ("", "Skipping(ValueError)"),
        ("", "Guard()"),
        ("", "quietly()"),
        ("", "made()"),
        ("quiet = suppress(ValueError)", "quiet"),
        ("quiet = Guard()", "quiet"),
        ("quiet = suppress(ValueError)", "self.quiet"),
    ],
)
def test_what_may_be_swallowed_may_not_be_written(before: str, manager: str) -> None:
    lines = WRITES.format(manager)
    assert "level" in _carried(QUIET.format(before=before, lines=lines))


@pytest.mark.parametrize("manager", ["open('here')", "timer", "torch.no_grad()"])
def test_what_lets_errors_pass_swallows_nothing(manager: str) -> None:
    text = QUIET.replace("return suppress(ValueError)", "pass")
    assert "level" not in _carried(text.format(before="", lines=WRITES.format(manager)))


def test_a_stack_may_swallow_what_it_was_given() -> None:
    lines = "with ExitStack() as stack: stack.enter_context(suppress(ValueError)); "
    assert "level" in _carried(QUIET.format(before="", lines=f"{lines} self.level = risky(value)"))


TURNED = """
class Slot:
    level = 0.0
class Ring:
    current = Slot()
    def __enter__(self): self.current = another()
    def __exit__(self, *error): pass
    def __iadd__(self, other):
        self.current = another()
        return self
    def forward(self): self.current = another()
    @property
    def place(self): return 0
    @place.setter
    def place(self, value): self.current = another()
    def turn(self): self.current = another()
    def stay(self): pass
    def use(self, value):
        self.current.level = value
        {turn}
        return self.current.level
ring = Ring()
{callbacks}
while True:
    ring.use(next(batches))
"""


@pytest.mark.parametrize(
    "turn",
    ["self += 1", "self(1)", "self.place = 1", "with self: pass", "callbacks[0]()", "self.turn()"],
)
def test_what_was_written_may_be_anothers_by_now(turn: str) -> None:
    callbacks = "callbacks = [ring.turn]" if "callbacks" in turn else ""
    assert "level" in _carried(TURNED.format(turn=turn, callbacks=callbacks))


def test_a_pattern_binds_a_name() -> None:
    turn = "match another():\n            case Slot() as found: found.level = 0.0"
    text = TURNED.format(turn="pass", callbacks="").replace("self.current.level", "found.level")
    text = text.replace("        pass\n        return", f"        {turn}\n        return")
    assert "level" not in _carried(text)
    after = text.replace("as found: found.level = 0.0", "as found: pass")
    assert "level" in _carried(after)


COLLISIONS = """
import torch
class Meter:
    level = 0.0
    def update(self, value): Meter.level = value
    def observe(self, value): self.last = value
def use(refresh, value):
    refresh(value)
    return events.level
def refresh(value): events.level = value
counts, meter = {{}}, Meter()
while True:
    x = next(batches)
    {line}
"""


@pytest.mark.parametrize(
    "line",
    ["counts.update(a=x); print(Meter.level)", "print(use(print, x))"],
)
def test_a_call_by_the_name_of_a_function_may_be_another_ones(line: str) -> None:
    assert "level" in _carried(COLLISIONS.format(line=line))


WHOLE = """
import pickle
from dataclasses import dataclass
def snapshot(thing):
    return dict(vars(thing))
@dataclass
class State:
    level: float = 0.0
    def use(self, value):
        before = {whole}
        self.level = value
        return self.level + before
    def measure(self):
        return self.level
state = State()
names = ["level"]
while True:
    state.use(next(batches))
    state.measure()
"""


@pytest.mark.parametrize(
    "whole",
    [
        "vars(state)['level']",
        "snapshot(self)['level']",
        "snapshot(state)['level']",
        "len(pickle.dumps(state))",
        "state == State(1.0)",
        "sum(getattr(self, name) for name in names)",
        "methodcaller('measure')(self)",
    ],
)
def test_all_of_an_object_may_be_asked_for_from_elsewhere(whole: str) -> None:
    assert "level" in _carried(WHOLE.format(whole=whole))


def test_else_it_is_written_first() -> None:
    assert "level" not in _carried(WHOLE.format(whole="0"))


HEADS = """
class State:
    pass
state = State()
while True:
    {line}
    print(state.level)
    state.level = 1
"""


@pytest.mark.parametrize(
    "line",
    [
        "state.level = 0\n    if (batch := fetch(1)) is None: break",
        "state.level = 0\n    with handed_out(fetch(1)) as batch: pass",
        "state.level = 0\n    match fetch(1):\n        case 1: pass",
    ],
)
def test_a_statement_may_fetch_in_its_head(line: str) -> None:
    tree = ast.parse(HEADS.format(line=line))
    assert "level" in carried_attributes((tree,), (frozenset({6}),))
