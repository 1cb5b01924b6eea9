"""Containers of classes that a script makes out of Python's are put back without their own code."""

from collections import Counter, OrderedDict, deque
from typing import Any

import pytest

from trainmover.worker.step.retry.copies import Copies


class Memory(OrderedDict[str, int]):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


class Own(list[int]):
    def _never(self, *_: Any) -> Any:
        raise AssertionError("the script's own code was run")

    copy = clear = extend = append = __iter__ = __setitem__ = _never


class Table(dict[str, int]):
    def __init__(self, first: int) -> None:
        super().__init__(first=first)

    def update(self, *_: Any) -> None:  # type: ignore[override]
        raise AssertionError("the script's own code was run")


def moved() -> Memory:
    memory = Memory(3)
    for number, name in enumerate("abc"):
        memory[name] = number
    memory.move_to_end("a")
    return memory


CONTAINERS = [
    (moved, lambda one: one.popitem(last=False), lambda one: list(one.items())),
    (moved, lambda one: one.move_to_end("b"), lambda one: list(one.items())),
    (lambda: Own([1, 2]), lambda one: list.append(one, 3), lambda one: list(list.__iter__(one))),
    (lambda: Table(1), lambda one: one.setdefault("more", 2), dict),
    (lambda: Counter("aab"), lambda one: one.update("b"), dict),
    (lambda: deque([1, 2], maxlen=2), lambda one: one.append(3), list),
]


@pytest.mark.parametrize(("make", "change", "entries"), CONTAINERS)
@pytest.mark.parametrize("added", ["add_container", "add"])
def test_they_are_put_back_as_they_were(make: Any, change: Any, entries: Any, added: str) -> None:
    container = make()
    copies, before = Copies(), entries(container)
    getattr(copies, added)(container)
    change(container)
    assert entries(container) != before
    copies.put_back()
    assert entries(container) == before
