"""Aliases through which a script may change what is tracked are seen as they are made."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from trainmover.state.tracked import Tracked
from trainmover.torch_internals.watching.aliases import Aliases, aliases, storage_of
from trainmover.worker.step.changes import Changes
from trainmover.worker.step.unseen import Unseen

WRAPPED = ("data", "numpy", "__dlpack__")


@pytest.fixture(autouse=True)
def watching() -> Iterator[None]:
    kind: Any = Tensor
    before = {name: vars(kind).get(name) for name in WRAPPED}
    aliases.watch()
    yield
    aliases.about_to = None
    for name, value in before.items():
        delattr(kind, name)
        if value is not None:
            setattr(kind, name, value)


class Rank:
    """Of one that makes steps, as `Updates` does."""

    def __init__(self) -> None:
        self.tracked = Tracked()
        self.model = nn.Linear(4, 4)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.model(torch.ones(1, 4)).sum().backward()
        self.optimizer.step()
        self.tracked.add("model", self.model)
        self.tracked.add("optimizer", self.optimizer)
        self.distrusted: list[str] = []
        self.changes = Changes()
        self.changes.begin(self.tracked)
        self.unseen = Unseen(self.changes, self.distrusted.append)

    def reached_by(self, step: Callable[[], object]) -> str:
        """What a step up to its gate may have changed unseen."""
        self.changes.begin(self.tracked)
        self.unseen.begin(self.tracked)
        step()
        self.unseen.end()
        return self.unseen.path

    def undisturbed(self, steps: int = 5) -> None:
        for _ in range(steps):
            assert not self.reached_by(lambda: None)


def moment(rank: Rank) -> Tensor:
    found: Tensor = rank.optimizer.state[rank.model.weight]["exp_avg"]
    return found


MADE_IN_THE_STEP: dict[str, Callable[[Rank], object]] = {
    "data": lambda r: r.model.weight.data.mul_(0.9),
    "a view of data": lambda r: r.model.weight.data[0].mul_(0.9),
    "optimizer's data": lambda r: moment(r).data.mul_(0.9),
    "numpy": lambda r: r.model.weight.detach().numpy().__imul__(2),
    "asarray": lambda r: numpy.asarray(r.model.weight.detach()).__imul__(2),
    "dlpack": lambda r: torch.from_dlpack(r.model.weight.detach()).mul_(2),
}


@pytest.mark.parametrize("way", MADE_IN_THE_STEP)
def test_what_a_step_may_change_unseen_is_named_also_the_first_time(way: str) -> None:
    rank = Rank()
    rank.undisturbed()
    path = "optimizer.state[0].exp_avg" if "optimizer" in way else "model.weight"
    for _ in range(3):
        assert rank.reached_by(lambda: MADE_IN_THE_STEP[way](rank)) == path
    assert rank.distrusted == [f"{path} may have been written to unseen"]
    rank.undisturbed()
    assert rank.unseen.any


HELD: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda t: t.detach().numpy(),
    "a part": lambda t: t.detach().numpy()[1:].T,
    "memoryview": lambda t: numpy.frombuffer(memoryview(t.detach().numpy()), "f4"),
    "data": lambda t: t.data,
    "a view of data": lambda t: t.data.view(-1)[3:],
    "a split": lambda t: t.data.split(2)[1],
}


@pytest.mark.parametrize("way", HELD)
def test_what_is_held_from_before_counts_in_each_step_until_it_is_let_go(way: str) -> None:
    rank = Rank()
    held = [HELD[way](rank.model.weight)]
    for _ in range(5):
        assert rank.reached_by(lambda: None) == "model.weight"
    held.clear()
    gc.collect()
    rank.undisturbed()


def test_what_reaches_nothing_that_is_tracked_does_not_count() -> None:
    rank = Rank()
    other = torch.ones(3)
    held = [other.data, other.numpy()]
    assert not rank.reached_by(lambda: held.append(other.data))
    assert not rank.distrusted
    assert not aliases.take_fresh()[1:]


def test_memory_under_several_tensors_is_named_by_the_first() -> None:
    rank = Rank()
    flat = torch.zeros(20)
    rank.model.weight.data = flat[:16].view(4, 4)
    rank.model.bias.data = flat[16:]
    assert rank.reached_by(lambda: flat.numpy().__iadd__(1)) == "model.weight"


def test_behind_the_gate_nobody_asks() -> None:
    rank = Rank()
    rank.undisturbed(1)
    rank.model.weight.data.mul_(0.5)
    rank.undisturbed(1)


def test_a_parameter_is_what_it_was_to_who_sets_and_reads_it() -> None:
    weight = nn.Parameter(torch.ones(3))
    alias = weight.data
    assert type(alias) is Tensor
    assert not alias.requires_grad
    assert alias.data_ptr() == weight.data_ptr()
    weight.data = torch.zeros(3)
    assert weight.sum() == 0
    with pytest.raises(RuntimeError, match="requires grad"):
        weight.numpy()
    assert weight.numpy(force=True).sum() == 0


def test_compiled_code_is_traced_as_without() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def compiled(x: Tensor, y: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() * 2) + (y + 1).numpy().sum() + x.data + (x * 2).data

    assert torch.equal(compiled(torch.ones(2), torch.ones(2)), torch.full((2,), 9.0))


def test_what_has_no_memory_of_its_own_is_passed_over() -> None:
    watched = Aliases()
    sparse = torch.ones(2).to_sparse()
    assert not storage_of(sparse)
    watched.made(sparse, sparse)
    assert not watched.take_fresh()
