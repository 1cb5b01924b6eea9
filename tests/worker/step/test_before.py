"""A step that is run again finds everything as it was."""

import dataclasses
import random
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from tests.again import Again
from tests.kept import Kept
from trainmover.state import rng
from trainmover.state.kinds.modules.registered import registered
from trainmover.state.tracked import Tracked
from trainmover.worker.keep import script_graph


class Counter:
    """Small tracked state."""

    def __init__(self) -> None:
        self.count = 0
        self.order: list[int] = []

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


class Averaged(nn.Module):
    """Keeps its mean by putting a new tensor in the buffer's place; `seen` begins as None."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("seen", None)

    def forward(self, batch: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * batch.detach().mean(0)
        self.seen = torch.ones(1)
        return batch - self.mean


def tracked(**objects: Any) -> Tracked:
    result = Tracked()
    for name, value in objects.items():
        result.add(name, value)
    return result


def test_every_generator_is_put_back() -> None:
    empty = tracked()
    taken = Again(empty)
    first = (torch.rand(3), random.random(), numpy.random.rand())
    assert taken.put_back() == ""
    again = (torch.rand(3), random.random(), numpy.random.rand())
    assert first[0].equal(again[0])
    assert first[1:] == again[1:]


def test_taking_draws_nothing() -> None:
    state = rng.capture()
    Again(tracked(model=nn.BatchNorm1d(3)), (torch.ones(2),), {})
    assert rng.capture() == state


def test_buffers_are_put_back_in_place() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    taken = Again(tracked(model=model))
    model(torch.randn(8, 3))
    assert not all(torch.equal(buffer, old) for buffer, old in buffers)
    assert taken.put_back() == ""
    assert all(torch.equal(buffer, old) for buffer, old in buffers)


def _resize(one: torch.Tensor) -> None:
    one.resize_(2, 4)


def _lengthen(one: torch.Tensor) -> None:
    one.resize_(900, 4).fill_(1)


def _cut(one: torch.Tensor) -> None:
    one.data = one.data[:3]


def _set(one: torch.Tensor) -> None:
    one.set_(torch.ones(7))  # type: ignore[call-overload]


def _turn(one: torch.Tensor) -> None:
    one.data = one.t()


def _empty(one: torch.Tensor) -> None:
    one.untyped_storage().resize_(0)
    one.resize_(0)


@pytest.mark.parametrize("change", [_resize, _lengthen, _cut, _set, _turn, _empty])
def test_a_buffer_gets_its_form_back(change: Callable[[torch.Tensor], None]) -> None:
    """And what lies behind it is put where it was."""
    model = nn.Module()
    held = torch.arange(24.0).view(6, 4)
    model.register_buffer("window", held.clone())
    model.register_buffer("mean", torch.arange(5.0))
    window, part = model.window, model.window[1:3]
    for _ in range(3):
        taken = Again(tracked(model=model), (part,))
        change(window)
        model.mean += 1
        assert taken.put_back() == ""
        assert model.window is window
        assert window.stride() == (4, 1)
        assert torch.equal(window, held)
        assert torch.equal(part, held[1:3])
        assert torch.equal(model.mean, torch.arange(5.0))


def test_a_sparse_buffer_is_put_back() -> None:
    model = nn.Module()
    model.register_buffer("edges", torch.eye(3).to_sparse())
    model.register_buffer("mean", torch.zeros(3))
    taken = Again(tracked(model=model))
    model.edges.mul_(2)
    model.mean += 1
    assert taken.put_back() == ""
    assert torch.equal(model.edges.to_dense(), torch.eye(3))
    assert torch.equal(model.mean, torch.zeros(3))


def test_a_buffer_that_the_step_has_replaced_is_put_back() -> None:
    model = nn.Sequential(Averaged())
    taken = Again(tracked(model=model))
    mean = model[0].mean
    model(torch.ones(2, 3))
    assert model[0].mean is not mean
    assert taken.put_back() == ""
    assert model[0].mean is mean
    assert mean.tolist() == [0.0, 0.0, 0.0]
    assert model[0].seen is None


def test_small_state_is_put_back() -> None:
    counter = Counter()
    objects = tracked(counter=counter)
    taken = Again(objects)
    counter.count = 5
    assert taken.put_back() == ""
    assert counter.count == 0


def test_gradients_are_dropped_and_parameters_kept() -> None:
    model = nn.Linear(3, 1)
    objects = tracked(model=model)
    [gradients] = objects.gradients
    gradients.begin_step()
    taken = Again(objects)
    model(torch.ones(2, 3)).sum().backward()
    weight = model.weight.detach().clone()
    assert gradients.put_back() == ""
    assert taken.put_back() == ""
    assert [parameter.grad for parameter in model.parameters()] == [None, None]
    assert model.weight.equal(weight)


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: "numpy.ndarray[Any, Any]"
    scale: float


def test_a_batch_changed_in_place_is_put_back_every_time() -> None:
    x, y, scale = torch.ones(2), [torch.zeros(1), "label"], torch.tensor(2.0)
    batch, objects = {"x": x, "y": y}, tracked()
    taken = Again(objects, (batch,), {"scale": scale})
    for _ in range(3):
        x.mul_(5)
        scale.zero_()
        batch.pop("x")
        y.pop()
        assert taken.put_back() == ""
        assert batch["x"] is x
        assert x.tolist() == [1.0, 1.0]
        assert y[1:] == ["label"]
        assert scale.item() == 2.0


def test_so_is_a_batch_of_numpy_s_and_one_that_is_an_object() -> None:
    array, batch, more = numpy.ones(2), Batch(torch.ones(2), numpy.ones(2), 1.0), [bytearray(2)]
    objects, x = tracked(), batch.x
    taken = Again(objects, (array, batch), {"more": more})
    for _ in range(2):
        for one in (array, batch.x, batch.y):
            one *= 5
        batch.x, batch.scale, more[0][0] = torch.zeros(1), 7.0, 3
        assert taken.put_back() == ""
        assert batch.x is x
        assert array.tolist() == batch.y.tolist() == batch.x.tolist() == [1, 1]
        assert batch.scale == 1.0
        assert more[0] == bytes(2)


class Samples(dict[str, Tensor]):
    """With what no entry is."""

    weights: Tensor
    scale: float


def test_attributes_beside_the_entries_of_a_batch_are_put_back() -> None:
    batch, x = Samples(x=torch.ones(2)), torch.ones(2)
    batch.weights, batch.scale = torch.ones(2), 1.0
    x.weights = [1.0]  # type: ignore[attr-defined]
    objects = tracked()
    taken = Again(objects, (batch, x), {})
    for _ in range(2):
        batch.weights *= 2
        batch["x"] *= 2
        batch.scale = 2.0
        x.weights.append(2.0)  # type: ignore[attr-defined]
        assert taken.put_back() == ""
        assert batch.weights.tolist() == batch["x"].tolist() == [1.0, 1.0]
        assert batch.scale == 1.0
        assert x.weights == [1.0]  # type: ignore[attr-defined]


def test_what_an_array_of_objects_holds_is_put_back() -> None:
    series = numpy.empty(2, dtype=object)
    series[:] = [numpy.ones(2), [1.0]]
    first, objects = series[0], tracked()
    taken = Again(objects, (series,), {"more": [series]})
    for _ in range(2):
        first *= 2
        series[1].append(2.0)
        series[0] = None
        assert taken.put_back() == ""
        assert series[0] is first
        assert (first.tolist(), series[1]) == ([1.0, 1.0], [1.0])


@dataclasses.dataclass(slots=True)
class Row:
    order: list[int]
    of: Batch | None = None


def test_what_lies_deeper_in_a_batch_is_put_back() -> None:
    inner = Batch(torch.ones(2), numpy.ones(2), 1.0)
    row, ids = Row([1, 2, 3], inner), {"a": [1]}
    batch, objects = UserDict[str, Any](rows=[row], ids=ids), tracked()
    taken = Again(objects, (batch,), {})
    for _ in range(2):
        row.order.pop()
        inner.scale, row.of = 2.0, None
        inner.x.zero_()
        ids["a"].append(2)
        batch["rows"].clear()
        del batch["ids"]
        assert taken.put_back() == ""
        assert batch["rows"] == [row]
        assert row.order == [1, 2, 3]
        assert row.of is inner
        assert (inner.scale, inner.x.tolist()) == (1.0, [1.0, 1.0])
        assert batch["ids"] is ids
        assert ids == {"a": [1]}


@pytest.mark.parametrize("change", ["unsqueeze_", "t_", "data"])
def test_so_are_shape_and_memory_of_a_tensor(change: str) -> None:
    x, other = torch.arange(6.0).view(2, 3), torch.zeros(2, 3)
    objects = tracked()
    taken = Again(objects, (x,), {})
    if change == "data":
        x.data = other
    else:
        getattr(x, change)(*[0] * (change == "unsqueeze_"))
    x.add_(1)
    assert taken.put_back() == ""
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert other.max() == (1.0 if change == "data" else 0.0)


def test_what_cannot_be_copied_is_passed_on_as_it_is() -> None:
    leaf, thing = torch.ones(1, requires_grad=True), object()
    taken = Again(tracked(), (leaf, thing), {})
    assert taken.put_back() == ""
    assert leaf.tolist() == [1.0]


def test_what_is_one_in_kept_values_stays_one() -> None:
    queue = Counter()
    entries = [[0.5, 1], [0.25, 2]]
    queue.heap, queue.of = [*entries], dict(enumerate(entries))  # type: ignore[attr-defined]
    objects = tracked(queue=Kept(queue, ("heap", "of", "count")))
    taken = Again(objects)
    for _ in range(2):
        queue.count += 1
        queue.of.pop(1)[1] = -1  # type: ignore[attr-defined]
        queue.heap = queue.heap[:1]  # type: ignore[attr-defined]
        assert taken.put_back() == ""
        assert queue.count == 0
        assert queue.heap == [[0.5, 1], [0.25, 2]]  # type: ignore[attr-defined]
        assert all(queue.heap[n] is queue.of[n] for n in (0, 1))  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_memory_that_can_only_be_read_is_left_alone(tmp_path: Path) -> None:
    """As of a file that is mapped: to write to it would end the process."""
    path = tmp_path / "data"
    path.write_bytes(bytes(16))
    batch = torch.from_numpy(numpy.memmap(path, mode="r"))
    taken = Again(tracked(), (batch,), {})
    assert taken.put_back() == ""
    assert batch.sum() == 0


@pytest.mark.parametrize("grows", [False, True])
def test_a_large_batch_is_not_copied_and_must_not_change(
    monkeypatch: pytest.MonkeyPatch, *, grows: bool
) -> None:
    monkeypatch.setattr(script_graph, "COPIED_TO", 100)
    small, large = torch.ones(25), torch.ones(26, requires_grad=grows)
    taken = Again(tracked(), (small, [large]))
    small.zero_()
    assert taken.put_back() == ""
    assert small.sum() == 25
    with torch.no_grad():
        large.zero_()
    assert "too large to be copied" in taken.put_back()


def test_a_step_run_again_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), Averaged())
    objects, batch = tracked(model=model), torch.randn(8, 3)

    def step(batch: Tensor) -> tuple[Tensor, Tensor]:
        loss = model(batch.mul_(0.5)).square().sum()
        loss.backward()
        grad = model[0].weight.grad
        assert grad is not None
        return loss.detach().clone(), grad.clone()

    [gradients] = objects.gradients
    gradients.begin_step()
    taken = Again(objects, (batch,), {})
    first = step(batch)
    assert gradients.put_back() == ""
    assert taken.put_back() == ""
    again = step(batch)
    assert first[0].equal(again[0])
    assert first[1].equal(again[1])


def test_a_scaler_left_half_way_unscales_again() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    everything = tracked(scaler=scaler)
    scaler.scale(torch.ones(()))  # Makes its tensors, as the first step of a script does.
    taken = Again(everything)
    for attempt in range(2):
        weight.grad = None
        scaler.scale(weight.sum()).backward()
        scaler.unscale_(optimizer)
        if attempt == 0:
            assert taken.put_back() == ""  # Aborted at the gate, before scaler.update().
    assert weight.grad is not None
    assert weight.grad.item() == 1.0


def test_a_buffer_that_an_aborted_step_has_registered_goes_with_it() -> None:
    tracked = Tracked()
    model = Averaged()
    tracked.add("model", model)
    for persistent in (True, False):
        taken = Again(tracked)
        model.register_buffer("calls", torch.ones(()), persistent=persistent)
        model.mean += 1
        assert taken.put_back() == ""
        assert not hasattr(model, "calls")
        assert torch.equal(model.mean, torch.zeros(3))


@pytest.fixture
def _watched() -> None:
    registered.watch()


@pytest.mark.usefixtures("_watched")
def test_a_layer_that_an_aborted_step_has_made_cannot_be_made_again() -> None:
    """What it begins with was drawn, and would not be again. One that each step exchanges would."""
    tracked = Tracked()
    model = Averaged()
    model.helper = nn.Linear(2, 2)
    tracked.add("model", model)
    taken = Again(tracked)
    nn.Sequential(nn.Linear(2, 2))
    model.helper = nn.Linear(2, 2)
    model.late = nn.Linear(2, 2)
    assert "given the model a layer" in taken.put_back()
    assert Again(tracked).put_back() == ""
