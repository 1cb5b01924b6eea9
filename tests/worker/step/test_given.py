"""What a step has given goes to the buddy where a row of numbers does not tell it."""

from typing import Any

import pytest
import torch

from trainmover.worker.step.given import BYTES_MAX, packed, unpacked


@pytest.mark.parametrize(
    "result", [{"loss": 0.1, "size": 3, "done": False}, (1.5, 2), [True, None, "x"], 7]
)
def test_plain_values_come_back_as_they_were(result: Any) -> None:
    back = unpacked(packed(result))
    assert back == result
    assert type(back) is type(result)


def test_tensors_come_back_bit_for_bit() -> None:
    loss, errors = unpacked(packed((torch.tensor(0.1), torch.tensor([float("nan"), -0.0]))))
    assert loss.item() == torch.tensor(0.1).item()
    assert errors.numpy().tobytes() == torch.tensor([float("nan"), -0.0]).numpy().tobytes()


@pytest.mark.parametrize("result", [None, 0.5, True, "text", torch.tensor(0.5), torch.ones(1)])
def test_what_a_row_tells_or_nobody_needs_is_left_out(result: Any) -> None:
    assert packed(result) == b""


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
