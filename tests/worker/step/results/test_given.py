"""What a step has given goes to the buddy where a row of numbers does not tell it."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from trainmover.ids import Step
from trainmover.worker.step.results.given import (
    BYTES_MAX,
    STEPS_MAX,
    Given,
    Kinds,
    lately,
    packed,
    unpacked,
)

PLAIN = [{"loss": 0.1, "size": 3, "done": False}, (1.5, 2), [True, None, "x"], 7, 0.5, True, "text"]


@pytest.mark.parametrize("result", PLAIN)
def test_plain_values_come_back_as_they_were(result: Any) -> None:
    back = unpacked(packed(result))
    assert back == result
    assert type(back) is type(result)


def test_tensors_come_back_bit_for_bit() -> None:
    loss, errors = unpacked(packed((torch.tensor(0.1), torch.tensor([float("nan"), -0.0]))))
    assert loss.item() == torch.tensor(0.1).item()
    assert errors.numpy().tobytes() == torch.tensor([float("nan"), -0.0]).numpy().tobytes()


def test_one_number_comes_back_in_its_type_and_without_its_graph() -> None:
    for loss in (torch.tensor([1 / 3], dtype=torch.float64), torch.tensor(3, dtype=torch.int32)):
        back = unpacked(packed(loss))
        assert (back.dtype, back.shape, back.tolist()) == (loss.dtype, loss.shape, loss.tolist())
    assert not unpacked(packed(torch.ones((), requires_grad=True) * 2)).requires_grad


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([(0.5, {"loss": 0.5})], True),
        ([(0.5, {})], True),  # The runtime reports it.
        ([(0.5, {"loss": 0.5, "norm": 0.5}), (0.25, {"loss": 0.25, "norm": 1.0})], True),
        ([(0.5, {"loss": 0.5}), (0.25, {"loss": 0.5})], False),
        ([(0.5, {"loss": 0.25})], False),
        ([], False),
    ],
)
def test_a_row_tells_a_number_that_all_calls_have_reported_by_one_name(
    calls: list[tuple[float, Mapping[str, float]]], told: bool
) -> None:
    kinds = Kinds()
    for given, values in calls:
        kinds.note("code", torch.tensor(given), values)
    assert kinds.are_told("code", torch.tensor(0.75), {}) == told
    assert kinds.are_told("code", None, {})


@pytest.mark.parametrize("result", [(0.5, 0.25), {"loss": 0.5}, torch.tensor(3), 3, "text", True])
def test_a_row_tells_nothing_but_one_number_with_a_fraction(result: Any) -> None:
    kinds = Kinds()
    kinds.note("code", result, {})
    assert not kinds.are_told("code", result, {})


def test_of_a_tensor_only_the_kind_is_kept() -> None:
    kinds = Kinds()
    kinds.note("code", torch.zeros(2, 3), {}, kept=True)
    kind, names = kinds.of("code")
    assert (kind.device.type, kind.shape, names) == ("meta", (2, 3), set())
    kinds.note("code", {"large": torch.zeros(2, 3)}, {})
    assert kinds.of("code")[0].shape == ()


def test_the_newest_results_are_kept_as_far_as_there_is_room() -> None:
    every = [Given(Step(step), {"loss": 0.5}) for step in range(1, 100)]
    kept = lately(every, Step(3))
    assert [one.step for one in kept] == [*range(100 - STEPS_MAX, 100)]
    assert [one.step for one in lately(every, Step(90), before=Step(95))] == [*range(90, 95)]
    states = [Given(Step(n), {}, b"", {"kept": bytes(BYTES_MAX // 3)}) for n in range(1, 9)]
    assert [one.small is not None for one in lately(states, Step(3))] == [False] * 3 + [True] * 3
    large = [Given(Step(step), {}, bytes(BYTES_MAX // 3)) for step in range(1, 9)]
    assert [one.step for one in lately(large, Step(1))] == [6, 7, 8]
    assert lately([], Step(1)) == []


@pytest.mark.parametrize(
    "result",
    [
        (torch.zeros(BYTES_MAX),),
        {"text": "x" * BYTES_MAX},
        (torch.ones(2, requires_grad=True), 1.0),
        {"object": object()},
    ],
    ids=["large tensor", "large text", "graph", "object"],
)
def test_what_cannot_be_sent_is_left_out(result: Any) -> None:
    assert packed(result) == b""


def test_a_number_that_a_row_has_told_by_a_name_and_tells_no_more_is_kept_from_then_on() -> None:
    kinds = Kinds()
    kinds.note("code", 0.5, {"loss": 0.5, "total": 0.5})  # An auxiliary loss begins later.
    assert kinds.are_told("code", 0.25, {"loss": 0.25, "total": 0.25})
    assert not kinds.are_told("code", 0.75, {"loss": 0.5, "total": 0.75})
    assert not kinds.are_told("code", 0.25, {"loss": 0.25, "total": 0.25})
    assert kinds.are_told("code", None, {})
