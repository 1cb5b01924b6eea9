"""Containers with many entries: what changes in the midst of them is a variable, too."""

from pathlib import Path
from typing import Any

import captures
import pytest

from trainmover.state.script.things import crowds
from trainmover.state.script.things.crowds import Crowd

SCRIPT = """
import typing
@dataclasses.dataclass
class Fields:
    weight: float = 0.0
class Shared:
    weight = 0.0
class Slots:
    __slots__ = ("weight",)
    def __init__(self): self.weight = 0.0
class Own:
    def __init__(self): self.weight = 0.0
    def hit(self, value): self.weight += value
class Row(typing.NamedTuple):
    name: str
    one: Own
class Group:
    def __init__(self): self.all = [Own(), Own()]
class Vector:
    def __init__(self): self.weights = numpy.zeros(2)
class Grid(list):
    pass
class Table(dict):
    pass
class Trainer:
    def __init__(self):
        self.kept = {made}
    def run(self):
        for x, y in job.batches(DATA):
            value = float(x.sum())
            {change}
        return sum(one.weight for one in list(self.kept) if hasattr(one, "weight"))
Trainer().run()
"""
OBJECTS = {
    "attributes": ("[Shared() for _ in range(150)]", "self.kept[70 + y].weight = value"),
    "fields": ("[Fields() for _ in range(150)]", "self.kept[70 + y].weight = value"),
    "slots": ("[Slots() for _ in range(150)]", "self.kept[70 + y].weight = value"),
    "a method": ("[Own() for _ in range(150)]", "self.kept[70 + y].hit(value)"),
    "a dict": ("{n: Own() for n in range(150)}", "self.kept[70 + y].hit(value)"),
    "a deque": ("collections.deque(Own() for _ in range(150))", "self.kept[70 + y].hit(value)"),
}
CHANGED = {
    "a pair": ("[(str(n), Own()) for n in range(150)]", "self.kept[70 + y][1].hit(value)"),
    "a tuple of a class": (
        "collections.deque(Row(n, Own()) for n in range(150))",
        "self.kept[70 + y].one.hit(value)",
    ),
    "a list in an object": (
        "[Group() for _ in range(80)]",
        "self.kept[70 + y].all[1].hit(value)",
    ),
    "a key": ("{Own(): n for n in range(150)}", "[*self.kept][70 + y].hit(value)"),
    "one of a set": ("{Own() for _ in range(150)}", "[*self.kept][70 + y].hit(value)"),
    "one of a few in the midst": (
        "[*(Shared() for _ in range(100)), Own(), *(Shared() for _ in range(100))]",
        "self.kept[100].hit(value)",
    ),
    "what others change": (
        "[Vector() for _ in range(150)]",
        "numpy.copyto(self.kept[70 + y].weights, value)",
    ),
    "one of a list of a class": ("Grid(Own() for _ in range(150))", "self.kept[70 + y].hit(value)"),
    "one of a dict of a class": (
        "Table((n, Own()) for n in range(150))",
        "self.kept[70 + y].hit(value)",
    ),
}
NUMBERS = {
    "a list": ("[0.0] * 1000", "self.kept[503 + y] = value"),
    "a dict": ("{n: 0.0 for n in range(1000)}", "self.kept[503 + y] = value"),
    "a tensor": ("torch.zeros(100_000)", "self.kept[503 + y] = value"),
    "an array": ("numpy.zeros(100_000)", "self.kept[503 + y] = value"),
}


@pytest.mark.parametrize("habit", OBJECTS)
def test_what_one_of_many_objects_has_is_compared(tmp_path: Path, habit: str) -> None:
    made, change = OBJECTS[habit]
    job = captures.run_in(tmp_path, SCRIPT.format(made=made, change=change))
    [found] = [one for one in job.differences() if "[...].weight" in one.name]
    assert found.file == "train.py"
    assert found.line


@pytest.mark.parametrize("habit", CHANGED)
def test_wherever_it_lies(tmp_path: Path, habit: str) -> None:
    made, change = CHANGED[habit]
    job = captures.run_in(tmp_path, SCRIPT.format(made=made, change=change))
    assert any("[...]" in one.name for one in job.differences())


@pytest.mark.parametrize("habit", CHANGED)
def test_it_is_none_where_nothing_changes(tmp_path: Path, habit: str) -> None:
    made, _ = CHANGED[habit]
    job = captures.run_in(tmp_path, SCRIPT.format(made=made, change="print(len(self.kept))"))
    assert not [one for one in job.differences() if "[...]" in one.name]


@pytest.mark.parametrize("habit", NUMBERS)
def test_so_is_one_of_many_numbers(tmp_path: Path, habit: str) -> None:
    made, change = NUMBERS[habit]
    job = captures.run_in(tmp_path, SCRIPT.format(made=made, change=change))
    assert any(one.name.endswith(".kept") for one in job.differences())


def test_many_that_nobody_changes_are_no_variable(tmp_path: Path) -> None:
    script = SCRIPT.format(made="[Shared() for _ in range(150)]", change="self.kept[y].weight")
    assert "[...]" not in str(captures.run_in(tmp_path, script).theirs[-1])


def test_of_too_many_some_are_read_and_none_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "OBJECTS_MAX", 3)

    class One:
        def __init__(self, weight: float) -> None:
            self.weight = weight

    def crowd(*weights: float) -> Crowd:
        return Crowd([One(weight) for weight in weights], {One: {"weight"}}, vars)

    def inside(value: object) -> Any:
        raise AssertionError(value)

    assert crowd(1, 2, 3).read(inside) == [3, 1, 2, 3]
    assert crowd(1, 2, 3, 4).read(inside) == [4, 1, 3]
    assert len(crowd(1, 2, 3).entries() or []) == 3
    assert crowd(1, 2, 3, 4).entries() is None


def test_what_lies_in_an_object_of_an_object_is_not_put_back() -> None:
    """So a step that has changed it is not run again in place."""

    class Inner:
        def __init__(self) -> None:
            self.weight = 1.0

    class Outer:
        def __init__(self) -> None:
            self.inner = Inner()

    crowd = Crowd([Outer()], {Outer: {"inner"}, Inner: {"weight"}}, vars)
    assert crowd.read(repr) == [1, 1.0]
    assert crowd.entries() is None
