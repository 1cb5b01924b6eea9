"""Parameters are initialised in the first run and only pretended in later ones, and nothing that
matters is changed by it.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainmover.errors import StateMismatch
from trainmover.sandbox.fills import SWITCH, Fills

WIDE = 1024  # WIDE * WIDE floats are large, biases are not


@pytest.fixture
def fills() -> Iterator[Fills]:
    state = torch.get_rng_state()
    known = Fills()
    yield known
    known.end()
    torch.set_rng_state(state)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE))


def set_up(
    fills: Fills, build: Callable[[], Any], seed: int = 1, more: Callable[[Any], Any] = lambda _: 0
) -> tuple[list[Tensor], Tensor, Any]:
    """One run: parameters of what was built, what was drawn afterwards, what more was made."""
    fills.begin()
    torch.manual_seed(seed)
    model = build()
    made = more(model)
    drawn = torch.rand(5)
    parameters = list(model.parameters())
    fills.settle(parameters)
    return [parameter.detach().clone() for parameter in parameters], drawn, made


def skipped(first: list[Tensor], second: list[Tensor]) -> list[bool]:
    return [not a.equal(b) for a, b in zip(first, second, strict=True)]


def test_the_first_run_is_left_as_it_is(fills: Fills) -> None:
    first, drawn, _ = set_up(fills, net)
    torch.manual_seed(1)
    plain = list(net().parameters())
    assert not any(skipped(first, plain))
    assert torch.rand(5).equal(drawn)


def test_a_later_run_skips_large_parameters_and_draws_the_same_numbers(fills: Fills) -> None:
    first, drawn, _ = set_up(fills, net)
    second, again, _ = set_up(fills, net)
    assert skipped(first, second) == [True, False, True, False]
    assert drawn.equal(again)


def test_pretended_numbers_are_alike(fills: Fills) -> None:
    def normal() -> nn.Module:
        layer = nn.Linear(WIDE, WIDE, bias=False)
        nn.init.normal_(layer.weight, 3.0, 0.5)
        return layer

    first, _, _ = set_up(fills, normal)
    second, _, _ = set_up(fills, normal)
    assert skipped(first, second) == [True]
    assert second[0].mean().item() == pytest.approx(3.0, abs=0.05)
    assert second[0].std().item() == pytest.approx(0.5, abs=0.05)


def test_another_seed_is_initialised_in_full(fills: Fills) -> None:
    set_up(fills, net)
    other, drawn, _ = set_up(fills, net, seed=2)
    torch.manual_seed(2)
    assert not any(skipped(other, list(net().parameters())))
    assert torch.rand(5).equal(drawn)


KEEPS: dict[str, Callable[[nn.Sequential], Any]] = {
    "a frozen copy": copy.deepcopy,
    "a clone": lambda model: model[0].weight.detach().clone(),
    "a norm": lambda model: model[0].weight.detach().norm(),
    "a number": lambda model: model[0].weight.sum().item(),
    "an array": lambda model: model[0].weight.detach().numpy().copy(),
    "a list": lambda model: model[0].weight.tolist()[:1],
    "a state dict loaded elsewhere": lambda model: loaded(model.state_dict()),
    "a large tensor of its own": lambda model: torch.empty(WIDE, WIDE).copy_(model[0].weight),
}


def loaded(state: dict[str, Tensor]) -> nn.Module:
    other = net()
    other.load_state_dict(state)
    return other


@pytest.mark.parametrize("kept", KEEPS)
def test_what_something_else_is_made_of_is_not_skipped(fills: Fills, kept: str) -> None:
    first, drawn, _ = set_up(fills, net, more=KEEPS[kept])
    second, again, _ = set_up(fills, net, more=KEEPS[kept])
    assert not skipped(first, second)[0]
    assert drawn.equal(again)


def test_what_is_made_and_dropped_again_does_not_count(fills: Fills) -> None:
    def dropped(model: nn.Sequential) -> None:
        torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    first, _, _ = set_up(fills, net, more=dropped)
    second, _, _ = set_up(fills, net, more=dropped)
    assert skipped(first, second) == [True, False, True, False]


def test_a_large_tensor_that_is_not_tracked_is_filled(fills: Fills) -> None:
    def data(_: Any) -> Tensor:
        return torch.empty(WIDE, WIDE).normal_()

    _, _, first = set_up(fills, net, more=data)
    _, _, second = set_up(fills, net, more=data)
    assert first.equal(second)


def test_a_run_that_makes_more_of_it_than_the_first_did_is_refused(fills: Fills) -> None:
    set_up(fills, net)
    with pytest.raises(StateMismatch, match="initialisation was skipped"):
        set_up(fills, net, more=copy.deepcopy)


def test_a_generator_of_its_own_is_left_alone(fills: Fills) -> None:
    def own() -> nn.Module:
        layer = nn.Linear(WIDE, WIDE)
        with torch.no_grad():
            layer.weight.uniform_(generator=torch.Generator().manual_seed(4))
        return layer

    first, _, _ = set_up(fills, own)
    assert not any(skipped(first, set_up(fills, own)[0]))


def test_it_can_be_switched_off(fills: Fills, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "full")
    first, _, _ = set_up(fills, net)
    assert not any(skipped(first, set_up(fills, net)[0]))


def test_nothing_is_left_in_torch(fills: Fills) -> None:
    set_up(fills, net)
    assert "uniform_" not in vars(Tensor)
    assert "numpy" not in vars(Tensor)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_what_is_compiled_during_set_up_is_compiled_and_nothing_is_skipped(fills: Fills) -> None:
    compiled: list[Any] = []

    def call(model: nn.Sequential) -> None:
        compiled.append(torch.compile(model, backend=backend))
        compiled[-1](torch.ones(2, WIDE))

    calls: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        calls.append(1)
        return graph.forward

    first, _, _ = set_up(fills, net, more=call)
    assert len(calls) == 1
    compiled[0](torch.ones(2, WIDE))
    assert len(calls) == 1
    torch._dynamo.reset()
    second, _, _ = set_up(fills, net, more=call)
    assert not any(skipped(first, second))


def test_a_parameter_that_is_part_of_a_larger_tensor_is_filled(fills: Fills) -> None:
    def part() -> nn.Module:
        model = nn.Module()
        whole = torch.empty(2 * WIDE, WIDE).normal_()
        model.weight = nn.Parameter(whole[:WIDE])
        return model

    first, _, _ = set_up(fills, part)
    assert not any(skipped(first, set_up(fills, part)[0]))
