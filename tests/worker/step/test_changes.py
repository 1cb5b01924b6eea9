"""Bulk state that a step changes before its gate is found, whatever way it is written to."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from trainmover.state.tracked import Tracked
from trainmover.worker.step.changes import Changes


class Average:
    """Keeps more than a record carries, and gives away its own memory."""

    def __init__(self) -> None:
        self.mean = torch.zeros(200, 200)

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.mean = state["mean"]


def build() -> Tracked:
    tracked = Tracked()
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    tracked.add("average", Average())
    return tracked


def weight(tracked: Tracked) -> Tensor:
    model = tracked["model"]
    assert isinstance(model, nn.Linear)
    return model.weight


def moment(tracked: Tracked) -> Tensor:
    optimizer = tracked["optimizer"]
    assert isinstance(optimizer, torch.optim.Optimizer)
    found: Tensor = optimizer.state[weight(tracked)]["exp_avg"]
    return found


def mean(tracked: Tracked) -> Tensor:
    average = tracked["average"]
    assert isinstance(average, Average)
    return average.mean


def exchange(tracked: Tracked) -> None:
    weight(tracked).data = weight(tracked).data * 2


MARKED: dict[str, Callable[[Tracked], object]] = {
    "model.weight": lambda t: weight(t).mul_(0.9),
    "optimizer.state[0].exp_avg": lambda t: moment(t).mul_(0.9),
    "average.mean": lambda t: mean(t).add_(1),
}
UNMARKED: dict[str, Callable[[Tracked], object]] = {
    "data": lambda t: weight(t).data.mul_(0.9),
    "numpy": lambda t: weight(t).detach().numpy().__imul__(2),
}


@pytest.mark.parametrize("path", MARKED)
def test_what_torch_writes_is_found_in_every_step(path: str) -> None:
    tracked, changes = build(), Changes()
    for _ in range(20):
        changes.begin(tracked)
        assert not changes.look()
    changes.begin(tracked)
    with torch.no_grad():
        MARKED[path](tracked)
    assert changes.look()
    assert changes.names == [path]
    assert changes.early
    assert not changes.look()


def one_step(tracked: Tracked, changes: Changes) -> None:
    changes.at_fetch(tracked)
    changes.since_fetch(tracked)
    changes.begin(tracked)
    changes.look()
    with torch.no_grad():
        weight(tracked).mul_(0.9)
    changes.step_is_over(tracked)


@pytest.mark.parametrize("path", MARKED)
def test_what_lines_behind_a_step_change_is_told_at_the_next_fetch(path: str) -> None:
    tracked, changes = build(), Changes()
    for _ in range(9):
        one_step(tracked, changes)
    changes.at_fetch(tracked)
    assert changes.moved == []
    one_step(tracked, changes)
    with torch.no_grad():
        MARKED[path](tracked)
    changes.at_fetch(tracked)
    assert changes.moved == [path]


@pytest.mark.parametrize("way", UNMARKED)
def test_what_they_change_without_a_mark_they_are_taken_to_change_ever_after(way: str) -> None:
    tracked, changes = build(), Changes()
    one_step(tracked, changes)
    UNMARKED[way](tracked)
    for _ in range(9):
        changes.at_fetch(tracked)
        assert changes.moved == ["model.weight"]
        one_step(tracked, changes)


@pytest.mark.parametrize("way", UNMARKED)
def test_what_leaves_no_mark_is_found_in_the_first_steps(way: str) -> None:
    tracked, changes = build(), Changes()
    changes.begin(tracked)
    UNMARKED[way](tracked)
    assert changes.look()
    assert changes.names == ["model.weight"]


def test_other_memory_in_a_parameters_place_is_found() -> None:
    tracked, changes = build(), Changes()
    for _ in range(5):
        changes.begin(tracked)
        assert not changes.look()
    changes.begin(tracked)
    exchange(tracked)
    assert changes.look()


def test_what_comes_behind_the_gate_is_nobodys_affair() -> None:
    tracked, changes = build(), Changes()
    for _ in range(5):
        changes.begin(tracked)
        assert not changes.look()
        with torch.no_grad():
            weight(tracked).mul_(0.5)
    assert not changes.early


def test_looks_at_bytes_go_on_for_as_long_as_they_cost_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0]

    def later() -> int:
        clock[0] += 50_000_000
        return clock[0]

    monkeypatch.setattr("trainmover.worker.step.changes.time.monotonic_ns", later)
    tracked, changes = build(), Changes()
    for _ in range(2000):
        changes.begin(tracked)
        weight(tracked).data.mul_(0.999)
        if changes._made > 3 and changes.look():
            break
    assert changes.names == ["model.weight"]


# --- between the fetch of a batch and its step ----------------------------------------------------


@pytest.mark.parametrize("path", MARKED)
def test_what_lines_before_the_step_write_is_found_each_time(path: str) -> None:
    tracked, changes = build(), Changes()
    for number in range(20):
        changes.at_fetch(tracked)
        if number % 5 == 4:
            with torch.no_grad():
                MARKED[path](tracked)
        assert changes.since_fetch(tracked) == [path] * (number % 5 == 4)
        changes.begin(tracked)
        assert not changes.look()
        changes.step_is_over(tracked)


@pytest.mark.parametrize("way", UNMARKED)
def test_what_leaves_no_mark_there_is_taken_to_happen_each_time(way: str) -> None:
    tracked, changes = build(), Changes()
    for _ in range(20):
        changes.at_fetch(tracked)
        UNMARKED[way](tracked)
        assert changes.since_fetch(tracked) == ["model.weight"]
        changes.begin(tracked)
        assert not changes.look()
        changes.step_is_over(tracked)


def test_state_that_is_dropped_there_is_found() -> None:
    tracked, changes = build(), Changes()
    changes.at_fetch(tracked)
    tracked["optimizer"].state.clear()  # type: ignore[attr-defined]
    assert changes.since_fetch(tracked) == ["the optimizer"]


def test_state_that_a_step_drops_is_found() -> None:
    tracked, changes = build(), Changes()
    changes.begin(tracked)
    tracked["optimizer"].state.clear()  # type: ignore[attr-defined]
    assert changes.look()
    assert changes.names == ["the optimizer"]


def test_what_a_step_does_is_not_taken_for_it() -> None:
    """Fetched ahead, or in the step itself; and two steps with one batch."""
    tracked, changes = build(), Changes()
    for fetches_inside in (False, True, False):
        changes.at_fetch(tracked)
        for _ in range(2):
            assert not changes.since_fetch(tracked)
            changes.begin(tracked)
            if fetches_inside:
                changes.at_fetch(tracked)
            with torch.no_grad():
                weight(tracked).mul_(0.9)
            changes.step_is_over(tracked)


def test_the_first_of_several_fetches_counts() -> None:
    tracked, changes = build(), Changes()
    changes.at_fetch(tracked)
    with torch.no_grad():
        weight(tracked).mul_(0.9)
    changes.at_fetch(tracked)
    assert changes.since_fetch(tracked) == ["model.weight"]
