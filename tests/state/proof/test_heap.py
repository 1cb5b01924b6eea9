"""What a script holds, at two moments: every change shows, and nothing else does."""

import array
import collections
import contextvars
import csv
import functools
import itertools
import logging
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from trainmover.state.proof import heap
from trainmover.state.proof.heap import Heap


class Meter:
    kept: list[int] = []  # noqa: RUF012 - of the class

    def __init__(self) -> None:
        self.count = 0
        self.seen: list[float] = []


class Slotted:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Level(Enum):
    LOW = 1

    def __init__(self, _: int) -> None:
        self.heat = 0


class Pair(NamedTuple):
    first: list[int]
    second: int


class Names(dict[str, int]):
    pass


def counting() -> Callable[[], int]:
    count = 0

    def more() -> int:
        nonlocal count
        count += 1
        return count

    return more


def each() -> Iterator[int]:
    yield from (1, 2, 3)


def with_grad() -> torch.Tensor:
    tensor = torch.zeros(3, requires_grad=True)
    tensor.grad = torch.zeros(3)
    return tensor


def function() -> None: ...


def marked() -> Any:
    function.mark = 1  # type: ignore[attr-defined]
    return function


def changed(make: Callable[[], Any], change: Callable[[Any], object]) -> list[str]:
    """Paths of what is another once the thing was changed."""
    thing = make()
    before = taken(thing)
    change(thing)
    return [path for path, *_ in before.differences(taken(thing))]


def taken(thing: object, skip: Any = frozenset()) -> Heap:
    return Heap(lambda path: path == __file__, skip).take({"thing": thing})


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "an attribute": (Meter, lambda it: setattr(it, "count", 1)),
    "an attribute that is gone": (Meter, lambda it: delattr(it, "count")),
    "a number below": (lambda: [0], lambda it: it.__setitem__(0, -1)),
    "a list of it": (Meter, lambda it: it.seen.append(0.5)),
    "a list of its class": (Meter, lambda it: it.kept.append(1)),
    "a slot": (Slotted, lambda it: setattr(it, "count", 1)),
    "an attribute of a member": (lambda: Level.LOW, lambda it: setattr(it, "heat", it.heat + 1)),
    "a closure": (counting, lambda it: it()),
    "an attribute of a function": (marked, lambda it: setattr(it, "mark", it.mark + 1)),
    "a default": (lambda: lambda x=[]: x, lambda it: it().append(1)),
    "a deep one": (
        lambda: [{"a": (1, {2: [Meter()]})}],
        lambda it: setattr(it[0]["a"][1][2][0], "count", 9),
    ),
    "one of many": (lambda: [Meter() for _ in range(300)], lambda it: setattr(it[217], "count", 9)),
    "a pair": (lambda: Pair([1], 2), lambda it: it.first.append(2)),
    "a subclass of dict": (Names, lambda it: it.update(a=1)),
    "the order of a dict": (lambda: {"a": 1, "b": 2}, lambda it: it.update(a=it.pop("a"))),
    "a set": (lambda: {1, 2}, lambda it: it.discard(2)),
    "a deque": (lambda: collections.deque([1, 2]), lambda it: it.rotate()),
    "a counter": (collections.Counter, lambda it: it.update("a")),
    "a namespace": (lambda: types.SimpleNamespace(a=0), lambda it: setattr(it, "a", 1)),
    "a partial": (lambda: functools.partial(print, [1]), lambda it: it.args[0].append(2)),
    "a method's object": (lambda: Meter().__str__, lambda it: setattr(it.__self__, "count", 1)),
    "a method": (
        lambda: types.MethodType(function, Meter()),
        lambda it: setattr(it.__self__, "count", 1),
    ),
    "bytes": (lambda: bytearray(b"abc"), lambda it: it.append(1)),
    "an array": (lambda: np.zeros(3), lambda it: it.__setitem__(1, 2)),
    "a small part of a large array": (
        lambda: np.zeros(1000, np.uint8),
        lambda it: it.__setitem__(999, 2),
    ),
    "a view of a memory": (lambda: memoryview(bytearray(9)), lambda it: it.__setitem__(1, 2)),
    "an array of objects": (lambda: np.array([[1], 2], object), lambda it: it[0].append(2)),
    "a structured number": (
        lambda: np.zeros(1, [("n", int)])[0],
        lambda it: it.__setitem__("n", 2),
    ),
    "an array of Python": (lambda: array.array("i", [1]), lambda it: it.append(1)),
    "a guarded array": (lambda: guarded(np.zeros(3)), lambda it: it.base.__setitem__(0, 1)),
    "a tensor": (lambda: torch.zeros(3), lambda it: it.data.add_(1)),
    "a tensor's grad": (with_grad, lambda it: it.grad.add_(1)),
    "a sparse tensor": (lambda: torch.eye(3).to_sparse(), lambda it: it.mul_(2)),
    "whether it is trained": (lambda: torch.zeros(3), lambda it: it.requires_grad_()),
    "a module's mode": (lambda: nn.Dropout(), lambda it: it.eval()),
    "a hook": (lambda: nn.Linear(1, 1), lambda it: it.register_forward_hook(print)),
    "a scheduler": (lambda: schedule(), lambda it: it.step()),
    "torch's generator": (torch.Generator, lambda it: torch.rand(1, generator=it)),
    "numpy's generator": (lambda: np.random.default_rng(1), lambda it: it.random()),
    "numpy's old one": (lambda: np.random.RandomState(1), lambda it: it.rand()),
    "Python's": (lambda: random.Random(1), lambda it: it.random()),
    "an iterator": (lambda: iter([1, 2, 3]), next),
    "an iterator of numpy's": (lambda: np.ndindex(3, 3), next),
    "a generator": (each, next),
    "lines of a table": (lambda: csv.reader(["1", "2"]), next),
}
if sys.version_info < (3, 14):
    CHANGES |= {
        "a cycle": (lambda: itertools.cycle([1, 2]), lambda it: [next(it), next(it), next(it)])
    }


def with_grad() -> torch.Tensor:
    tensor = torch.zeros(3, requires_grad=True)
    tensor.grad = torch.zeros(3)
    return tensor


def guarded(values: Any) -> Any:
    view = values.view()
    view.flags.writeable = False
    return view


def schedule() -> Any:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Detected call")
def test_every_change_shows(kind: str) -> None:
    make, change = CHANGES[kind]
    assert changed(make, change)
    assert changed(make, lambda _: None) == []


@pytest.mark.parametrize(
    ("make", "again"),
    [
        (lambda: {"a": [1, 2]}, lambda it: it.update(a=[1, 2])),
        (Meter, lambda it: setattr(it, "seen", [])),
        (Meter, lambda it: setattr(it, "new", 1)),
        (lambda: [torch.zeros(2)], lambda it: it.__setitem__(0, torch.zeros(2))),
        (lambda: [float("nan")], lambda it: it.__setitem__(0, float("nan"))),
    ],
)
def test_an_equal_one_is_no_other(make: Callable[[], Any], again: Callable[[Any], object]) -> None:
    assert changed(make, again) == []


def test_names_are_compared_as_well() -> None:
    before = Heap(lambda _: False).take({"count": 1, "made": []})
    now = Heap(lambda _: False).take({"count": 2, "made": [], "new": 1})
    assert [*before.differences(now)] == [("count", 1, 2)]


def test_it_says_where() -> None:
    def change(it: Any) -> None:
        it["loss"].seen.append(1)
        it["loss"].count = 2

    paths = changed(lambda: {"loss": Meter()}, change)
    assert paths == [
        "thing['loss'].count",
        "thing['loss'].seen's length",
        "thing['loss'].seen[0]",
    ]


def test_of_what_no_name_leads_to_the_script_s_own_is_found() -> None:
    hidden = [counting(), Meter()]
    before = Heap(lambda path: path == __file__).take({})
    hidden[0]()
    hidden[1].count = 3
    paths = [path for path, *_ in before.differences(Heap(lambda path: path == __file__).take({}))]
    assert any("count" in path for path in paths)
    assert len(paths) >= 2


def test_nothing_is_said_of_what_is_left_out() -> None:
    thing = {"model": torch.zeros(2)}
    before = taken(thing, {id(thing["model"])})
    thing["model"].add_(1)
    assert not [*before.differences(taken(thing, {id(thing["model"])}))]
    thing["model"] = torch.ones(3)
    assert not [*before.differences(taken(thing, {id(thing["model"])}))]


def test_what_runs_is_not_gone_into() -> None:
    thing = [logging.getLogger("heap"), threading.Lock(), threading.current_thread(), sys.stdout]
    thing += [contextvars.ContextVar("heap"), weakref.ref(Meter)]
    before = taken(thing)
    logging.getLogger("heap").setLevel(10)
    assert not [*before.differences(taken(thing))]


def test_an_object_that_raises_is_passed_by() -> None:
    class Shy:
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    assert changed(lambda: [Shy(), Meter()], lambda it: setattr(it[1], "count", 4)) == [
        "thing[1].count"
    ]


def test_of_much_memory_little_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "BYTES_MAX", 16)
    for thing in (np.zeros(999), bytearray(999), torch.zeros(999), array.array("d", [0.0] * 999)):
        assert changed(lambda thing=thing: thing, lambda it: it.__setitem__(0, 1))  # type: ignore[misc]


def test_there_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "OBJECTS_MAX", 50)
    assert taken([[n] for n in range(100)]).partial
