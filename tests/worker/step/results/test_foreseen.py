"""What a step will give is known at its gate, if its function has it in a variable by then."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from made_steps import Gate, Steps
from torch import Tensor

from trainmover.worker.step.results.foreseen import FUNCTIONS_MAX, Foreseen
from trainmover.worker.step.results.given import BYTES_MAX, packed, unpacked
from trainmover.worker.step.results.reported import LOOKS_MAX


def in_a_tensor(gate: Gate, number: float) -> Any:
    loss = torch.tensor(number, requires_grad=True) * 2
    gate()
    return loss.detach()


def as_a_number(gate: Gate, number: float) -> Any:
    loss = torch.tensor(number)
    gate()
    return loss.item()


def as_elements(gate: Gate, number: float) -> Any:
    loss, share = torch.tensor([number], requires_grad=True) * 2, torch.tensor([[number]])
    gate()
    return loss[0].detach(), loss.item(), share.flatten()


def in_a_dict(gate: Gate, number: float) -> Any:
    loss, share = torch.tensor(number), number / 3
    errors = torch.full((3,), number)
    gate()
    return {"loss": loss.item(), "parts": (share, errors)}


def in_a_list(gate: Gate, number: float) -> Any:
    following = [torch.full((2,), number + 1), torch.full((3,), number + 2)]
    errors = number, number / 3
    gate()
    return errors[1], following


def in_a_list_that_shrinks(gate: Gate, number: float) -> Any:
    errors = [number, number + 1][: 2 if number < 5 else 1]
    gate()
    return errors[-1] if number < 5 else errors[0] + 1


def further_down(gate: Gate, number: float) -> Any:
    def update() -> Tensor:
        loss = torch.tensor(number)
        gate()
        return loss

    return (update().item(), 1 / 3 + update().item())[0]


def made_behind_it(gate: Gate, number: float) -> Any:
    share = torch.tensor(number)
    gate()
    return share + torch.rand(1)


def made_by_an_object(gate: Gate, number: float) -> Any:
    loss, optimizer = torch.tensor(number), torch.optim.SGD([torch.ones(1)], lr=number)
    gate()
    return loss.item(), optimizer.param_groups[0]["lr"] * 2


def too_large(gate: Gate, number: float) -> Any:
    errors = torch.full((BYTES_MAX,), number)
    gate()
    return errors


def one_of_two(gate: Gate, number: float) -> Any:
    loss, above = torch.tensor(number), number if number < 5 else number + 1
    gate()
    return loss.item() + 0 * above


def of_two_shapes(gate: Gate, number: float) -> Any:
    loss = torch.full((1 if number < 5 else 2,), number)
    gate()
    return loss.mean().item()


@pytest.mark.parametrize(
    "function", [in_a_tensor, as_a_number, as_elements, in_a_dict, in_a_list, further_down]
)
def test_what_is_in_variables_is_known_after_two_steps(function: Any) -> None:
    steps = Steps(function)
    for number in (0.125, 0.25):
        result = steps.make(number)
        assert steps.seen == b""
        assert steps.sent == packed(result)
    for number in (0.5, 0.75, 0.75, float("nan"), -0.0):
        result = steps.make(number)
        assert steps.seen == packed(result)
        assert steps.sent == b""
    assert type(unpacked(steps.seen)) is type(result)
    assert not steps.blind


@pytest.mark.parametrize("function", [made_behind_it, made_by_an_object, too_large])
def test_what_is_in_none_goes_behind_the_step(function: Any) -> None:
    steps = Steps(function)
    for number in range(LOOKS_MAX + 3):
        result = steps.make(number + 0.5)
        assert steps.seen == b""
        assert steps.sent == packed(result)
    assert steps.blind == [LOOKS_MAX]  # Told once.


def test_one_that_gives_something_else_is_learned_anew() -> None:
    steps = Steps(one_of_two)
    for number in (0.125, 0.25):
        steps.make(number)
    steps.make(0.5)
    assert steps.seen == packed(0.5)
    result = steps.make(5.5)
    assert steps.seen == packed(6.5)
    assert steps.sent == packed(result)
    for number in (6.5, 7.5, 8.5, 9.5):
        result = steps.make(number)
    assert steps.seen == packed(result)


@pytest.mark.parametrize("function", [of_two_shapes, in_a_list_that_shrinks])
def test_a_variable_of_one_number_may_hold_two_later(function: Any) -> None:
    steps = Steps(function)
    for number in (0.125, 0.25):
        steps.make(number)
    result = steps.make(5.5)
    assert steps.seen == b""
    assert steps.sent == packed(result)


@pytest.fixture
def warns_always() -> Iterator[None]:
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("warns_always")
def test_numbers_are_compared_without_a_warning() -> None:
    def of_a_graph(gate: Gate, number: float) -> Any:
        loss = torch.tensor(number, requires_grad=True) * 2
        gate()
        return loss.item()

    steps = Steps(of_a_graph)
    for number in (0.125, 0.25, 0.5):
        steps.make(number)
    assert steps.seen == packed(1.0)


def test_a_step_that_is_tried_again_forgets_what_it_saw() -> None:
    steps = Steps(as_a_number)
    for number in (0.125, 0.25, 0.5):
        steps.make(number)
    steps.foreseen.begin()
    assert steps.foreseen.result == b""
    steps.make(0.75)
    assert steps.seen == packed(0.75)


def test_a_script_that_makes_a_function_for_each_step_fills_nothing() -> None:
    foreseen = Foreseen()
    for number in range(3 * FUNCTIONS_MAX):
        foreseen.begin()
        foreseen.at_gate(f"code {number}", list)
        assert foreseen.returned(f"code {number}", 0.5) == packed(0.5)
    assert len(foreseen._of) == FUNCTIONS_MAX
