"""What an update changed is undone: the same objects, with the bits from before."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainmover.state.tracked import Tracked
from trainmover.worker.step.retry.copies import Copies
from trainmover.worker.step.retry.undo import Undo

OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1)),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "lbfgs": lambda p: torch.optim.LBFGS(p, max_iter=2, history_size=2),
}


class Average:
    """Gives away copies only."""

    def __init__(self) -> None:
        self.mean = torch.zeros(200, 200)

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.mean = state["mean"]


def build(kind: str) -> Tracked:
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    tracked = Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", OPTIMIZERS[kind](model.parameters()))
    tracked.add("average", Average())
    return tracked


def update(tracked: Tracked, undo: Undo | None) -> None:
    """A step's update, as the runtime sees it."""
    model: Any = tracked["model"]
    optimizer: Any = tracked["optimizer"]
    average: Any = tracked["average"]

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    if undo is not None:
        undo.before_update(tracked, optimizer)
    optimizer.step(closure)
    average.mean += 1


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_an_update_is_undone_as_often_as_it_is_aborted(kind: str, steps_before: int) -> None:
    tracked, undo = build(kind), Undo()
    for _ in range(steps_before):
        update(tracked, None)
    before = tracked.digest()
    update(tracked, None)
    after = tracked.digest()
    tracked = build(kind)
    for _ in range(steps_before):
        update(tracked, None)
    for _ in range(3):
        undo.begin()
        update(tracked, undo)
        assert tracked.digest() == after
        undo.put_back()
        assert tracked.digest() == before


def test_state_that_the_update_has_made_is_gone() -> None:
    tracked, undo = build("adamw"), Undo()
    optimizer: Any = tracked["optimizer"]
    update(tracked, undo)
    undo.put_back()
    assert dict(optimizer.state) == {}


def test_objects_stay_the_same_ones() -> None:
    tracked, undo = build("adamw"), Undo()
    optimizer: Any = tracked["optimizer"]
    update(tracked, None)
    state, group = next(iter(optimizer.state.values())), optimizer.param_groups[0]
    average, rate = state["exp_avg"], group["lr"]
    undo.begin()
    update(tracked, undo)
    rate.fill_(7.0)
    undo.put_back()
    assert next(iter(optimizer.state.values())) is state
    assert state["exp_avg"] is average
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.1)


def test_a_second_optimizer_is_added_when_it_steps() -> None:
    first, second = build("adamw"), build("momentum")
    undo = Undo()
    before = second.digest()
    update(first, undo)
    update(second, undo)
    undo.put_back()
    assert second.digest(["model", "optimizer"]) == build("momentum").digest(["model", "optimizer"])
    assert before != second.digest()  # its average was nobody's to undo: it is not tracked


def test_a_step_without_an_update_costs_nothing_and_undoes_nothing() -> None:
    tracked, undo = build("adamw"), Undo()
    update(tracked, undo)
    undo.begin()
    after = tracked.digest()
    undo.put_back()
    assert tracked.digest() == after
    assert undo.cost == ""


def test_memory_is_used_again() -> None:
    copies, values = Copies(), [torch.ones(3), torch.zeros(3), {"a": [torch.ones(2)]}]
    copies.add(*values)
    first = {copy.data_ptr() for _, copy in copies._tensors}
    copies.begin()
    copies.add(*values)
    assert {copy.data_ptr() for _, copy in copies._tensors} == first
    assert copies.nbytes == 32


def test_containers_get_their_old_entries() -> None:
    inner: list[Any] = [1, torch.ones(1)]
    outer = {"inner": inner, "n": 3}
    copies = Copies()
    copies.add(outer)
    inner.append(5)
    inner[1].zero_()
    outer.clear()
    outer["other"] = 1
    copies.put_back()
    assert outer == {"inner": inner, "n": 3}
    assert inner[0] == 1
    assert len(inner) == 2
    assert inner[1].item() == 1.0


def test_all_that_is_tracked_is_copied_before_a_step_that_may_change_it() -> None:
    tracked = build("adamw")
    update(tracked, None)
    before = tracked.digest()
    undo = Undo()
    undo.begin()
    undo.copy_all(tracked)
    with torch.no_grad():
        tracked["model"].weight.mul_(0.5)  # type: ignore[attr-defined]
    update(tracked, undo)
    undo.put_back()
    assert tracked.digest() == before


@pytest.mark.filterwarnings("ignore:.*MaskedTensors:UserWarning")
def test_of_a_tensor_without_memory_of_its_own_what_it_wraps_is_put_back() -> None:
    """Nobody can make room for such a one, nor copy into it."""
    data = torch.arange(4.0)
    masked = torch.masked.MaskedTensor(data, data > 1)
    copies = Copies()
    copies.add({"masked": masked})

    for one in (masked._masked_data, masked._masked_mask):
        one.zero_()
    copies.put_back()

    assert masked.get_data().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert masked.get_mask().tolist() == [False, False, True, True]
