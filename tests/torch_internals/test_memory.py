"""What is read of a tensor where it lies is what torch says; where it would not be, none is."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from trainmover.asked import Answers, Words, is_in_c
from trainmover.torch_internals import memory
from trainmover.torch_internals.memory import LAYOUT, place_of, places_in, words_of
from trainmover.torch_internals.tensors import ADDRESS, FORM, VERSION, Watched

pytestmark = pytest.mark.skipif(not is_in_c("Words"), reason="the extension was not built")


def tensors() -> list[Tensor]:
    whole = torch.arange(60.0)
    return [
        nn.Parameter(torch.randn(4, 3)),
        torch.zeros(()),
        whole[7:19].view(3, 4),
        whole[20:32].view(4, 3).t(),
        torch.zeros(2, 1, 2, 1, 2),
        torch.zeros(3, dtype=torch.int64),
        torch.empty(0),
    ]


def found(values: list[Tensor], *, form: bool) -> Words:
    words = words_of(values, form=form)
    assert words is not None
    return words


def test_torch_as_it_is_installed_is_known() -> None:
    """Where it is not a step is slower, and nobody would see why."""
    assert LAYOUT is not None


def test_what_is_read_is_what_torch_says() -> None:
    values = tensors()
    values[0].data.add_(1)
    with torch.no_grad():
        values[0].mul_(2)
    words = found(values, form=False)
    assert words.versions() == [one._version for one in values]
    assert places_in(words) == [*map(place_of, values)]


def swap(value: Tensor) -> None:
    torch.utils.swap_tensors(value, nn.Parameter(torch.randn(4, 3)))


WRITES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda one: one.detach().mul_(2),
    "no_grad": lambda one: torch.no_grad()(one.zero_)(),
    "foreach": lambda one: torch._foreach_add_([one.detach()], 1),
    "copy": lambda one: one.detach().copy_(torch.ones(4, 3)),
    "a view": lambda one: one.detach()[1].fill_(3),
    "out": lambda one: torch.add(one.detach(), 1, out=one.detach()),
}
MOVES: dict[str, Callable[[Tensor], object]] = {
    "data": lambda one: setattr(one, "data", torch.randn(4, 3)),
    "a part": lambda one: setattr(one, "data", torch.randn(5, 3)[1:]),
    "set_": lambda one: one.detach().set_(torch.randn(4, 3)),
    "swap": swap,
}
FORMS: dict[str, Callable[[Tensor], object]] = {
    "transposed": lambda one: setattr(one, "data", one.data.t()),
    "another view": lambda one: setattr(one, "data", one.data.view(2, 6)),
    "another type": lambda one: setattr(one, "data", one.data.view(torch.int32)),
    "less of it": lambda one: setattr(one, "data", one.data[:3]),
}


@pytest.mark.parametrize("change", [*WRITES.values(), *MOVES.values()], ids=[*WRITES, *MOVES])
def test_who_writes_or_moves_it_is_seen(change: Callable[[Tensor], object]) -> None:
    value = nn.Parameter(torch.randn(4, 3))
    watched = Watched([torch.zeros(2), value])
    watched.note()
    assert watched.same()
    change(value)
    assert not watched.same()
    assert watched.changed() == [1]
    watched.note()
    assert watched.same()


@pytest.mark.parametrize("change", [*MOVES.values(), *FORMS.values()], ids=[*MOVES, *FORMS])
def test_memory_of_another_form_is_seen(change: Callable[[Tensor], object]) -> None:
    value = torch.randn(4, 3)
    answers, words = Answers(ADDRESS, *FORM), found([value], form=True)
    answers.note([value])
    if change is swap:
        torch.utils.swap_tensors(value, torch.randn(4, 3))
    else:
        change(value)
    assert words.same() == answers.same([value])


def test_writes_do_not_change_the_form() -> None:
    value = torch.randn(4, 3)
    words = found([value], form=True)
    value.add_(1)
    assert words.same()


def test_gradients_and_flags_are_no_change() -> None:
    value = nn.Parameter(torch.randn(4, 3))
    watched = Watched([value])
    watched.note()
    value.sum().backward()
    value.requires_grad_(False)
    assert watched.same()


def any_change(dice: random.Random, value: Tensor) -> None:
    every = {**WRITES, **MOVES, **FORMS, "nothing": lambda one: None}
    choice = dice.choice([*every, "nothing", "nothing"])
    if choice == "swap":
        torch.utils.swap_tensors(value, torch.randn(4, 3))
    else:
        every[choice](value)


def test_whatever_happens_the_words_never_say_same_where_torch_does_not() -> None:
    for seed in range(200):
        the_words_never_say_same_where_torch_does_not(seed)


def the_words_never_say_same_where_torch_does_not(seed: int) -> None:
    dice = random.Random(seed)
    values = [torch.randn(4, 3) for _ in range(5)]
    marks, forms = Answers(VERSION, ADDRESS), Answers(ADDRESS, *FORM)
    marks.note(values)
    forms.note(values)
    watched, words, shown = Watched(values), found(values, form=False), found(values, form=True)
    watched.note()
    for value in values:
        any_change(dice, value)
    assert watched.same() == marks.same(values)
    assert not words.same() or marks.same(values)
    assert not shown.same() or forms.same(values)
    assert (watched.changed() == []) == marks.same(values)


def test_storage_that_is_freed_and_made_anew_is_seen() -> None:
    """As FSDP does with its parameters: the storage stays, its memory goes."""
    value = torch.randn(4, 3)
    watched = Watched([value])
    watched.note()
    storage = value.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    assert not watched.same()
    watched.note()
    storage.resize_(size)
    assert not watched.same()


class Odd(Tensor):
    pass


@pytest.mark.parametrize(
    "odd",
    [
        torch.inference_mode()(torch.zeros)(3),
        torch.zeros(3).to_sparse(),
        torch.zeros(1, 1, 1, 1, 1, 1),
        torch.zeros(3).as_subclass(Odd),
        torch._C._functorch._add_batch_dim(torch.zeros(3), 0, 1),
    ],
    ids=["inference", "sparse", "six dimensions", "another class", "batched"],
)
def test_what_is_otherwise_is_not_read(odd: Tensor) -> None:
    assert words_of([torch.zeros(1), odd], form=False) is None


def test_what_moves_all_the_time_is_asked_and_not_searched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value, searches = torch.zeros(3), []
    from trainmover.torch_internals import tensors as module

    def counted(values: list[Tensor], *, form: bool) -> Words | None:
        searches.append(1)
        return memory.words_of(values, form=form)

    monkeypatch.setattr(module, "words_of", counted)
    watched = Watched([value])
    for _ in range(30):
        watched.note()
        assert watched.same()
        value.data = torch.zeros(3)
        assert not watched.same()
    assert len(searches) < 10


def test_without_a_known_layout_torch_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LAYOUT", None)
    value = torch.zeros(3)
    watched = Watched([value])
    watched.note()
    assert watched.same()
    value.add_(1)
    assert not watched.same()
    assert watched.changed() == [0]
