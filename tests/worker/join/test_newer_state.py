"""What lines before a committed step make of what it has changed stands for nothing behind it."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from trainmover.errors import StateMismatch
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.modes import entered
from trainmover.worker.join.newer_state import NewerState
from trainmover.worker.join.unknown import NumberOfBefore, TensorOfBefore


class Run:
    """Of lines around a step that is passed over. other: of what nobody tracks"""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.x, self.other = torch.ones(4, 3), torch.zeros(2)
        self.tracked = Tracked()
        self.tracked.add("model", self.model)
        self.tracked.add("optimizer", self.optimizer)
        self.newer = NewerState(self.tracked)


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    run.newer.begin()
    yield run
    run.newer.end()
    assert run.newer not in entered()


def test_what_is_made_of_a_model_is_unknown_behind_the_step(run: Run) -> None:
    loss = run.model(run.x).square().mean()
    number = loss.item()
    run.newer.step_passed()
    run.newer.end()
    assert (type(loss), type(number)) == (TensorOfBefore, NumberOfBefore)
    for follows in (lambda: loss * 2, lambda: number + 1, lambda: number > 0, lambda: float(loss)):
        with pytest.raises(StateMismatch, match="lines before its last step"):
            follows()


MADE: list[Callable[[Run], Tensor]] = [
    lambda run: run.model[0].weight.detach().clone(),
    lambda run: torch.cat([run.x.flatten(), run.model[0].weight.flatten()]),
    lambda run: run.other.copy_(run.model[0].bias.detach()),
    lambda run: run.other.mul_(run.model[0].bias.detach()),
    lambda run: torch.add(run.x[0, :2], run.model[0].bias.detach(), out=run.other),
    lambda run: run.x * run.model[0].bias.sum().item(),
    lambda run: _set(run.other, run.model[0].bias.detach()[0]),
    lambda run: run.model[1].running_mean * 1.0,
]


def _set(into: Tensor, value: Tensor) -> Tensor:
    into[0] = value
    return into


@pytest.mark.parametrize("make", MADE)
def test_so_is_what_is_copied_or_written(run: Run, make: Callable[[Run], Tensor]) -> None:
    made = make(run)
    run.newer.end()
    assert type(made) is TensorOfBefore


def test_what_lines_behind_the_step_make_of_it_is_unknown_too(run: Run) -> None:
    before = run.model(run.x).sum()
    run.newer.step_passed()
    difference = run.model(run.x).sum() - before
    number = 0.9 * before.item() + 0.1
    after = run.model(run.x).sum()
    run.newer.end()
    assert [type(difference), type(number)] == [TensorOfBefore, NumberOfBefore]
    assert type(after) is Tensor
    assert after.item() == after.item()


TELLS: list[Callable[[Tensor], object]] = [
    float,
    bool,
    lambda value: value.tolist(),
    lambda value: value.numpy(),
    lambda value: value.item() > 0,
    lambda value: round(value.item(), 2),
    lambda value: torch.equal(value, value),
]


@pytest.mark.parametrize("tell", TELLS)
def test_what_would_lead_elsewhere_is_refused_at_once(
    run: Run, tell: Callable[[Tensor], object]
) -> None:
    loss = run.model(run.x).sum().detach()
    with pytest.raises(StateMismatch, match="lines before its last step"):
        tell(loss)


def test_it_may_be_shown(run: Run) -> None:
    loss = run.model(run.x).sum()
    assert f"{loss:.3f} {loss.item():.2f}" == "nan nan"


def test_what_is_tracked_is_not_changed_by_it(run: Run) -> None:
    before = run.model(run.x).sum().detach()
    run.newer.step_passed()
    with torch.no_grad(), pytest.raises(StateMismatch, match="lines before its last step"):
        run.model[0].bias.mul_(before)


def test_what_is_tracked_lives_on_and_what_looks_at_it_and_its_gradients() -> None:
    run = Run()
    run.model(run.x).sum().backward()
    newer = NewerState(run.tracked)
    newer.begin()
    view, gradient = run.model[0].weight.detach(), run.model[0].weight.grad
    run.model(run.x)
    newer.end()
    assert [type(view), type(gradient), type(run.model[1].running_mean)] == [Tensor] * 3
    assert type(run.model[0].weight) is nn.Parameter


def test_nothing_else_is_touched(run: Run) -> None:
    other = run.x.sum() * 2
    assert float(other) == 24.0
    run.newer.end()
    assert type(other) is Tensor


def test_what_is_filled_anew_is_known_again(run: Run) -> None:
    made, later = run.model[0].weight.detach().clone(), run.model[0].bias.detach().clone()
    made.copy_(torch.ones(2, 3))
    run.newer.end()
    assert [type(made), type(later)] == [Tensor, TensorOfBefore]
    assert later.copy_(torch.ones(2)).sum().item() == 2.0


def test_modes_of_the_script_are_left_as_they_are_entered(run: Run) -> None:
    run.newer.end()
    newer = NewerState(run.tracked)
    with torch.device("meta"):
        newer.begin()
    assert torch.ones(1).device.type == "cpu"
    with torch.device("meta"):
        newer.end()
        assert torch.ones(1).device.type == "meta"
    assert torch.ones(1).device.type == "cpu"
