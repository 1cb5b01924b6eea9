"""The extension and Python hear the same answers."""

import random
import weakref
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainmover import asked
from trainmover.asked import (
    Answers,
    Pieces,
    PlainAnswers,
    PlainPieces,
    PlainSizes,
    PlainStored,
    PlainTables,
    Sizes,
    Stored,
    Tables,
    are,
    given,
    held_in,
    known_refs,
    plain_are,
    plain_given,
    plain_known_refs,
)

BOTH = pytest.mark.parametrize("kind", [Answers, PlainAnswers])
FORM = (Tensor._version, Tensor.data_ptr, Tensor.is_contiguous, Tensor.shape, Tensor.dtype)


def tensors() -> list[Any]:
    return [nn.Parameter(torch.arange(6.0).view(2, 3)), torch.zeros(4), torch.zeros(0)]


@BOTH
def test_nothing_is_the_same_before_it_was_noted(kind: type[Answers]) -> None:
    answers = kind(*FORM)
    assert not answers.same(tensors())
    assert answers.noted(0) == []


@BOTH
def test_a_write_another_memory_and_another_form_are_seen(kind: type[Answers]) -> None:
    asked_of, answers = tensors(), kind(*FORM)
    answers.note(asked_of)
    assert answers.same(asked_of)
    asked_of[1].add_(1)
    assert not answers.same(asked_of)
    answers.note(asked_of)
    asked_of[1].data = torch.zeros(4)
    assert not answers.same(asked_of)
    answers.note(asked_of)
    asked_of[0].data = asked_of[0].data.view(3, 2)
    assert not answers.same(asked_of)
    answers.note(asked_of)
    assert answers.same(asked_of)


@BOTH
def test_more_fewer_and_others_are_not_the_same(kind: type[Answers]) -> None:
    asked_of, answers = tensors(), kind(*FORM)
    answers.note(asked_of)
    assert not answers.same(asked_of[1:])
    assert not answers.same([*asked_of, torch.zeros(1)])
    assert not answers.same(asked_of[::-1])


@BOTH
def test_attributes_that_python_has_are_asked_for_too(kind: type[Answers]) -> None:
    modules, answers = [nn.ReLU() for _ in range(3)], kind(attrgetter("training"))
    answers.note(modules)
    assert answers.same(modules)
    modules[1].training = False
    assert not answers.same(modules)
    answers.note(modules)
    assert answers.noted(0) == [True, False, True]


@BOTH
def test_numbers_beyond_64_bits_and_other_types_differ(kind: type[Answers]) -> None:
    one, answers = SimpleNamespace(value=2**70), kind(attrgetter("value"))
    answers.note([one])
    assert answers.same([one])
    assert answers.noted(0) == [2**70]
    for other in (2**70 + 1, 7, "7", None, (7,)):
        one.value = other
        assert not answers.same([one])
        answers.note([one])
        assert answers.same([one])


@BOTH
def test_who_cannot_answer_raises_and_nothing_is_noted(kind: type[Answers]) -> None:
    answers = kind(Tensor._version)
    answers.note(tensors())
    with pytest.raises((TypeError, AttributeError)):
        answers.note([3])
    assert not answers.same(tensors())
    with torch.inference_mode():
        unversioned = torch.zeros(2)
    with pytest.raises(RuntimeError):
        answers.note([unversioned])


@BOTH
def test_a_list_that_shrinks_while_it_is_asked_harms_nothing(kind: type[Answers]) -> None:
    objects: list[Any] = [SimpleNamespace(at=at) for at in range(50)]

    def takes_some(one: Any) -> int:
        del objects[one.at + 5 :]
        return int(one.at)

    answers = kind(takes_some)
    answers.note(objects)
    assert answers.noted(0) == [0, 1, 2, 3, 4] or not answers.same(objects)


@BOTH
def test_answers_keep_no_object_alive(kind: type[Answers]) -> None:
    objects, answers = tensors(), kind(*FORM)
    alive = [weakref.ref(one) for one in objects]
    answers.note(objects)
    objects.clear()
    assert [reference() for reference in alive] == [None] * 3


@pytest.mark.parametrize("compare", [are, plain_are])
def test_two_lists_have_the_very_same_objects(compare: Any) -> None:
    one = tensors()
    assert compare(one, list(one))
    assert compare([], [])
    assert not compare(one, one[1:])
    assert not compare(one, [*one[:2], torch.zeros(0)])
    assert not compare(one, [one[1], one[0], one[2]])


class Number(int):
    """No plain value, though it is an int."""


@pytest.mark.parametrize("refs", [known_refs, plain_known_refs])
def test_plain_values_and_known_objects_have_references(refs: Any) -> None:
    first, second, other = [1], [1], object()
    values = [first, 7, second, True, other, 1 << 40, -1, 1 << 70, -1 << 70, Number(1 << 40), first]
    edges, integers = [5], [6]
    found = refs(values, {id(first): 3, id(second): 4}, frozenset({int, bool}), edges, integers, 7)
    plain = [(7,), (True,), (1 << 40,), (-1,), (1 << 70,), (-1 << 70,)]
    one, two, three, *rest = plain
    assert found == [("", 3), one, ("", 4), two, None, three, *rest, None, ("", 3)]
    assert found[3][0] is True
    assert (edges, integers) == ([5, 3, 4, 3], [6, 1 << 40, 1 << 70])


@pytest.mark.parametrize("ask", [given, plain_given])
def test_given_tells_who_has_one(ask: Any) -> None:
    parameters = tensors()
    assert ask(Tensor.grad, parameters) == bytes(3)
    parameters[0].grad = torch.zeros(2, 3)
    assert ask(Tensor.grad, parameters) == b"\x01\x00\x00"


@pytest.mark.parametrize("kind", [Pieces, PlainPieces])
def test_pieces_are_the_same_object_until_something_is_written(kind: type[Pieces]) -> None:
    memory = torch.arange(4)
    pieces = kind([memory.data_ptr(), memory.data_ptr() + 24, 0], [16, 8, 0])
    first = pieces.read()
    assert first == memory[[0, 1, 3]].numpy().tobytes()
    assert pieces.read() is first
    memory[2] = 9
    assert pieces.read() is first
    memory[3] = 9
    assert pieces.read() == memory[[0, 1, 3]].numpy().tobytes() != first


def test_where_an_object_does_not_lie_it_is_not_believed() -> None:
    assert not asked.stands_for(Tensor, torch.zeros(1), 16)


TABLES = pytest.mark.parametrize("kind", [Tables, PlainTables])


def two_tables() -> list[Any]:
    return [{"a": [1], "b": [2]}, {}, OrderedDict(x=[3], y=[4], z=[5])]


CHANGES: dict[str, Callable[[list[Any]], object]] = {
    "a value": lambda tables: tables[0].update(b=[2]),
    "an equal key": lambda tables: tables[0].__setitem__("c", tables[0].pop("b")),
    "one more": lambda tables: tables[1].update(a=None),
    "one less": lambda tables: tables[2].popitem(),
    "another order": lambda tables: tables[0].update(a=tables[0].pop("a")),
    "an order of its own": lambda tables: tables[2].move_to_end("x"),
    "its begin": lambda tables: tables[2].move_to_end("z", last=False),
    "cleared": lambda tables: tables[2].clear(),
    "moved over": lambda tables: tables[1].update([tables[0].popitem()]),
}


@TABLES
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_tables_are_the_same_until_one_holds_something_else(
    kind: type[Tables], change: Callable[[list[Any]], object]
) -> None:
    tables = two_tables()
    held = kind(tables)
    assert held.same()
    change(tables)
    assert not held.same()
    assert kind(tables).same()


@TABLES
def test_what_was_in_a_table_is_kept_and_so_nothing_new_is_taken_for_it(kind: type[Tables]) -> None:
    tables: list[Any] = [{"a": []}]
    held = kind(tables)
    for _ in range(100):
        tables[0]["a"] = []
        assert not held.same()


@pytest.mark.parametrize("wrong", [[3], [{}, None], ({},)])
def test_only_a_list_of_tables_is_taken_in_c(wrong: Any) -> None:
    if Tables is PlainTables:
        pytest.skip("the extension was not built")
    with pytest.raises(TypeError, match="a list of dicts"):
        Tables(wrong)


SIZES = pytest.mark.parametrize("kind", [Sizes, PlainSizes])


@SIZES
def test_sizes_are_the_same_until_something_comes_or_goes(kind: type[Sizes]) -> None:
    containers: list[Any] = [{"a": 1}, [1, 2], vars(SimpleNamespace), OrderedDict(), {3}]
    held = kind(containers, [*map(len, containers)])
    assert held.same()
    containers[0]["a"] = 2
    assert held.same()
    for one, change, back in [
        (0, lambda it: it.update(b=1), lambda it: it.popitem()),
        (1, lambda it: it.pop(), lambda it: it.append(7)),
        (3, lambda it: it.update(x=1), lambda it: it.clear()),
        (4, lambda it: it.clear(), lambda it: it.add(4)),
    ]:
        change(containers[one])
        assert not held.same()
        back(containers[one])
        assert held.same()


@SIZES
def test_a_container_that_cannot_be_asked_says_so(kind: type[Sizes]) -> None:
    with pytest.raises(TypeError, match="has no len"):
        kind([3], [0]).same()


def test_each_container_has_its_size_in_c() -> None:
    if Sizes is PlainSizes:
        pytest.skip("the extension was not built")
    for containers, sizes in [([{}], []), (({},), [0])]:
        with pytest.raises(TypeError, match="each with its size"):
            Sizes(containers, sizes)  # type: ignore[arg-type]


class Mapped:
    """Like a dict, as far as it is asked."""

    def __init__(self, **inside: Any) -> None:
        self.inside = inside

    def keys(self) -> Any:
        return self.inside.keys()

    def values(self) -> Any:
        return self.inside.values()


def test_what_is_only_like_a_dict_is_asked_in_python() -> None:
    tables = [{"a": 1}, Mapped(b=[2])]
    held = held_in(tables)
    assert type(held) is PlainTables
    assert held.same()
    tables[1].inside["b"] = [2]
    assert not held.same()
    assert type(held_in([{}])) is Tables


STORED = pytest.mark.parametrize("kind", [Stored, PlainStored])


class Flagged:
    def __init__(self) -> None:
        self.training = True
        self.calls = 0


class Slotted:
    __slots__ = ("training",)

    def __init__(self) -> None:
        self.training = True


class Computed:
    """Its own attributes do not show it."""

    is_on = True

    @property
    def training(self) -> bool:
        return self.is_on


@STORED
def test_who_has_another_value_is_seen(kind: type[Stored]) -> None:
    objects = [Flagged(), Slotted(), nn.Linear(2, 2), Computed()]
    stored = kind("training")
    assert not stored.same(objects)
    stored.note(objects)
    for _ in range(3):
        assert stored.same(objects)
    for one, name in [*((one, "training") for one in objects[:3]), (objects[3], "is_on")]:
        setattr(one, name, False)
        assert not stored.same(objects)
        setattr(one, name, True)
        assert stored.same(objects)


@STORED
def test_other_attributes_and_other_ways_to_store(kind: type[Stored]) -> None:
    one = Flagged()
    stored = kind("training")
    stored.note([one])
    for _ in range(3):
        one.calls += 1
        assert stored.same([one])
    vars(one)["training"] = False
    assert not stored.same([one])
    vars(one)["training"] = True
    assert stored.same([one])
    one.__dict__ = {"training": False}
    assert not stored.same([one])
    one.__dict__ = {"training": True}
    assert stored.same([one])
    del one.training
    with pytest.raises(AttributeError):
        stored.same([one])


@STORED
def test_a_class_that_gets_the_attribute_itself_is_seen(kind: type[Stored]) -> None:
    class Late(Flagged):
        pass

    one = Late()
    stored = kind("training")
    stored.note([one])
    Late.training = property(lambda self: False)  # type: ignore[assignment]
    assert not stored.same([one])


@STORED
def test_others_and_more_and_fewer_are_seen(kind: type[Stored]) -> None:
    objects = [Flagged(), Flagged()]
    stored = kind("training")
    stored.note(objects)
    assert not stored.same(objects[:1])
    assert not stored.same([*objects, Flagged()])
    assert not stored.same([objects[0], Flagged()])
    assert not stored.same(objects[::-1])


@STORED
@pytest.mark.parametrize("seed", range(50))
def test_whatever_is_stored_both_hear_what_is_there(kind: type[Stored], seed: int) -> None:
    dice = random.Random(seed)
    objects = [dice.choice([Flagged, Slotted])() for _ in range(10)]
    stored = kind("training")
    stored.note(objects)
    noted = [one.training for one in objects]
    for _ in range(30):
        one = dice.choice(objects)
        if dice.random() < 0.5:
            one.training = dice.random() < 0.8
        elif isinstance(one, Flagged):
            one.calls += 1
        assert stored.same(objects) == ([one.training for one in objects] == noted)
