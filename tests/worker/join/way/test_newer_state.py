"""What lines before a committed step make of what it has changed stands for nothing behind it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from trainmover.errors import StateMismatch
from trainmover.state.kinds.values import Attributes
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.modes import entered
from trainmover.worker.join.unknown import NumberOfBefore, TensorOfBefore
from trainmover.worker.join.way.newer_state import NewerState


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
    run.newer.break_off()
    assert run.newer not in entered()


def test_what_is_made_of_a_model_is_unknown_behind_the_step(run: Run) -> None:
    loss = run.model(run.x).square().mean()
    number = loss.item()
    run.newer.step_passed()
    run.newer.arrive()
    assert (type(loss), type(number)) == (TensorOfBefore, NumberOfBefore)
    for follows in (lambda: loss * 2, lambda: number + 1, lambda: number > 0, lambda: float(loss)):
        with pytest.raises(StateMismatch, match="lines before or behind its last step"):
            follows()


MADE: list[Callable[[Run], Tensor]] = [
    lambda run: run.model[0].weight.detach().clone(),
    lambda run: torch.cat([run.x.flatten(), run.model[0].weight.flatten()]),
    lambda run: run.other.copy_(run.model[0].bias.detach()),
    lambda run: run.other.mul_(run.model[0].bias.detach()),
    lambda run: torch.add(run.x[0, :2], run.model[0].bias.detach(), out=run.other),
    lambda run: run.x * run.model[0].bias.sum().item(),
    lambda run: _set(run.other, run.model[0].bias.detach()[0]),
]


def _set(into: Tensor, value: Tensor) -> Tensor:
    into[0] = value
    return into


@pytest.mark.parametrize("make", MADE)
def test_so_is_what_is_copied_or_written(run: Run, make: Callable[[Run], Tensor]) -> None:
    made = make(run)
    run.newer.arrive()
    assert type(made) is TensorOfBefore


def test_what_lines_behind_the_step_make_of_it_is_unknown_too(run: Run) -> None:
    before = run.model(run.x).sum()
    run.newer.step_passed()
    difference = run.model(run.x).sum() - before
    number = 0.9 * before.item() + 0.1
    after = run.model(run.x).sum()
    run.newer.arrive()
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
    with pytest.raises(StateMismatch, match="lines before or behind its last step"):
        tell(loss)


def test_it_may_be_shown(run: Run) -> None:
    loss = run.model(run.x).sum()
    assert f"{loss:.3f} {loss.item():.2f}" == "nan nan"


def test_what_is_tracked_is_not_changed_by_it(run: Run) -> None:
    before = run.model(run.x).sum().detach()
    run.newer.step_passed()
    lines = "lines before or behind its last step"
    with torch.no_grad(), pytest.raises(StateMismatch, match=lines):
        run.model[0].bias.mul_(before)


def test_behind_the_step_what_these_lines_change_themselves_is_newer() -> None:
    run = Run()
    run.newer.begin()
    run.newer.step_passed(["model.0.bias"])
    kept = run.model[0].weight.sum().item()
    tried = run.model[0].bias.sum().item()
    with torch.no_grad():
        run.model[0].bias.mul_(0.9)
        with pytest.raises(StateMismatch, match="lines before or behind its last step"):
            run.model[0].weight.mul_(run.model[0].bias.sum())
    run.newer.break_off()
    assert (type(kept), type(tried)) == (float, NumberOfBefore)


def test_what_is_tracked_lives_on_and_what_looks_at_it_and_its_gradients() -> None:
    run = Run()
    run.model(run.x).sum().backward()
    newer = NewerState(run.tracked)
    newer.begin()
    view, gradient = run.model[0].weight.detach(), run.model[0].weight.grad
    run.model(run.x)
    newer.arrive()
    assert [type(view), type(gradient), type(run.model[1].running_mean)] == [Tensor] * 3
    assert type(run.model[0].weight) is nn.Parameter


def test_nothing_else_is_touched(run: Run) -> None:
    other = run.x.sum() * 2
    assert float(other) == 24.0
    run.newer.arrive()
    assert type(other) is Tensor


def test_what_is_filled_anew_is_known_again(run: Run) -> None:
    made, later = run.model[0].weight.detach().clone(), run.model[0].bias.detach().clone()
    made.copy_(torch.ones(2, 3))
    run.newer.arrive()
    assert [type(made), type(later)] == [Tensor, TensorOfBefore]
    assert later.copy_(torch.ones(2)).sum().item() == 2.0


def test_modes_of_the_script_are_left_as_they_are_entered(run: Run) -> None:
    run.newer.arrive()
    newer = NewerState(run.tracked)
    with torch.device("meta"):
        newer.begin()
    assert torch.ones(1).device.type == "cpu"
    with torch.device("meta"):
        newer.arrive()
        assert torch.ones(1).device.type == "meta"
    assert torch.ones(1).device.type == "cpu"


def test_a_gradient_made_here_is_unknown_and_the_one_that_lies_on_a_parameter_lives_on(
    run: Run,
) -> None:
    run.model(run.x).sum().backward()
    bias = run.model[0].bias
    norm = bias.grad.norm()
    number = norm.item()
    run.newer.arrive()
    assert [type(norm), type(number), type(bias.grad)] == [TensorOfBefore, NumberOfBefore, Tensor]


def test_what_holds_a_piece_that_was_written_is_unknown(run: Run) -> None:
    rows, twin = torch.zeros(3, 2), torch.zeros(2)
    rows[1].copy_(run.model[0].bias.detach())
    view = twin.view(2)
    view.add_(run.model[0].bias.detach())
    assert isinstance((rows * 2).sum().item(), NumberOfBefore)
    run.newer.arrive()
    assert [type(rows), type(twin)] == [TensorOfBefore] * 2


def test_what_the_script_has_caught_is_raised_where_it_arrives(run: Run) -> None:
    with suppress(StateMismatch):
        bool(run.model(run.x).sum() > 0)
    with pytest.raises(StateMismatch):
        run.newer.arrive()


def test_a_compiled_model_is_left_alone(run: Run) -> None:
    compiled = torch.compile(run.model, backend="eager", fullgraph=True)
    assert compiled(run.x).shape == (4, 2)


def test_functions_that_hand_on_by_name_are_followed(run: Run) -> None:
    filled = torch.nn.init.normal_(tensor=run.model[0].weight.detach().clone())
    run.newer.arrive()
    assert type(filled) is Tensor


def test_buffers_that_go_with_the_record_are_as_they_were(run: Run) -> None:
    assert float(run.model[1].num_batches_tracked + 1) == 1.0


def test_large_state_of_other_objects_is_newer_too() -> None:
    run = Run()
    average = SimpleNamespace(shadow=torch.ones(100_000))
    run.tracked.add("average", Attributes(average, ("shadow",)))
    run.tracked.small_states()
    newer = NewerState(run.tracked)
    newer.begin()
    number = average.shadow.sum().item()
    newer.break_off()
    assert isinstance(number, NumberOfBefore)


def test_a_default_device_may_be_set_meanwhile(run: Run) -> None:
    torch.set_default_device("cpu")
    torch.set_default_device(None)
    assert run.newer in entered()


def test_a_sharded_model_is_followed(tmp_path: Path) -> None:
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(tmp_path / "s"), 1), rank=0, world_size=1
    )
    try:
        model = nn.Linear(2, 2)
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        tracked = Tracked()
        tracked.add("model", model)
        newer = NewerState(tracked)
        newer.begin()
        made = model.weight.to_local() * 2  # type: ignore[operator]
        newer.arrive()
        assert type(made) is TensorOfBefore
    finally:
        dist.destroy_process_group()


WRITES: list[Callable[[Tensor], object]] = [
    lambda bias: bias.data.mul_(0.9).add_(0.1),
    lambda bias: bias.mul_(0.9),
    lambda bias: torch._foreach_mul_([bias], 0.9),
    lambda bias: bias.__setitem__(0, 0.5),
    lambda bias: bias.detach().lerp_(torch.ones(2), 0.1),
]


@pytest.mark.parametrize("write", WRITES)
def test_that_they_change_it_is_seen_as_they_do(write: Callable[[Tensor], object]) -> None:
    """Also by what no counter sees, and begins behind the first steps."""
    run = Run()
    run.newer.begin()
    run.newer.step_passed()
    before = run.model[0].bias.sum().item()
    with torch.no_grad():
        write(run.model[0].bias)
    after, other = run.model[0].bias.sum().item(), run.model[0].weight.sum().item()
    run.newer.break_off()
    assert [type(before), type(after), type(other)] == [float, NumberOfBefore, float]


KNOWN: list[Callable[[Tensor], object]] = [
    lambda bias: bias.zero_(),
    lambda bias: bias.data.fill_(0.5),
    lambda bias: bias.requires_grad_(False),
]


@pytest.mark.parametrize("fill", KNOWN)
def test_what_they_fill_it_with_is_known(fill: Callable[[Tensor], object]) -> None:
    run = Run()
    run.newer.begin()
    run.newer.step_passed()
    with torch.no_grad():
        fill(run.model[0].bias)
    after = run.model[0].bias.sum().item()
    run.newer.break_off()
    assert type(after) is float
