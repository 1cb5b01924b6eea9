"""The make of a model is known to have changed whoever has looked at it meanwhile; and what the
code of layers relies on, though the script never reads it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import captures
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainmover.state.script.code.relied_on import relied_on
from trainmover.state.script.comparison import advice
from trainmover.state.script.things.layers import Layers


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def read(layers: Layers) -> list[object]:
    return layers.read(len)  # type: ignore[arg-type]


def test_to_read_it_is_not_to_note_it() -> None:
    model = net()
    layers = Layers(model)
    layers.note()
    before = read(layers)
    assert layers.is_same()
    model[0].register_forward_hook(lambda layer, given, output: output)
    assert read(layers) != before
    assert not layers.is_same(), "somebody else may have read it first"
    layers.note()
    assert layers.is_same()


def put_in(model: nn.Sequential) -> None:
    model.append(nn.ReLU())


def hook(model: nn.Sequential) -> None:
    model[1].register_forward_pre_hook(lambda layer, given: given)


def exchange(model: nn.Sequential) -> None:
    model[1] = nn.ReLU()


def take_out(model: nn.Sequential) -> None:
    del model[0]


def turn_into(model: nn.Sequential) -> None:
    model[1].__class__ = nn.Tanh


@pytest.mark.parametrize("change", [put_in, hook, exchange, take_out, turn_into])
def test_a_make_knows_of_every_change(change: Callable[[nn.Sequential], None]) -> None:
    model = net()
    layers = Layers(model)
    layers.note()
    make = layers.make()
    assert make is layers.make(), "a step that finds nothing new makes nothing anew"
    change(model)
    layers.note()
    assert not make.is_same(), "whoever notes it anew meanwhile"
    assert layers.make().is_same()


def test_buffers_that_are_in_no_state_dict_are_no_part_of_it() -> None:
    model = net()
    layers = Layers(model)
    before = read(layers)
    model.register_buffer("later", torch.zeros(1), persistent=False)
    assert read(layers) == before
    model.register_buffer("kept", torch.zeros(1))
    assert read(layers) != before


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.label = 1.0, "a"

    @property
    def double(self) -> float:
        return 2 * self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        other = nn.ReLU()
        return other(x) * self.factor(x)

    def factor(self, x: torch.Tensor) -> float:
        return max([self.offset * one for one in (1, 2)])


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (Scaled, {"scale", "factor", "offset"}),
        (nn.Dropout, {"p", "training", "inplace"}),
        (nn.modules.batchnorm._BatchNorm, {"momentum", "eps"}),
        (nn.SmoothL1Loss, {"beta", "reduction"}),
        (int, set()),
    ],
)
def test_what_the_code_of_a_class_reads(kind: type, wanted: set[str]) -> None:
    assert relied_on([kind], wanted | {"label", "last", "ReLU"}) == wanted


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterDict({name: torch.ones(2) for name in "ab"})
        self.register_buffer("one", torch.zeros(2))
        self.register_buffer("two", torch.zeros(2))


def swap_parameters(model: Pair) -> None:
    scales = model.scales
    scales["a"], scales["b"] = scales["b"], scales["a"]


def swap_buffers(model: Pair) -> None:
    model.one, model.two = model.two, model.one


def another_parameter(model: Pair) -> None:
    model.scales["a"] = nn.Parameter(torch.ones(2))


def put_parameter_last(model: Pair) -> None:
    model.scales["a"] = model.scales.pop("a")


def put_buffer_last(model: Pair) -> None:
    one = model.one
    del model.one
    model.register_buffer("one", one)


@pytest.mark.parametrize("change", [put_parameter_last, put_buffer_last])
def test_the_order_of_tensors_is_part_of_it(change: Callable[[Pair], None]) -> None:
    model = Pair()
    layers = Layers(model)
    layers.note()
    before = read(layers)
    change(model)
    assert not layers.is_same()
    assert read(layers) != before


@pytest.mark.parametrize("change", [swap_parameters, another_parameter, swap_buffers])
def test_which_tensor_has_a_name_counts_for_nobody_who_goes_by_names(
    change: Callable[[Pair], None],
) -> None:
    model = Pair()
    layers = Layers(model)
    layers.note()
    before = read(layers)
    change(model)
    assert layers.is_same(), "nothing is read anew"
    assert read(layers) == before


@pytest.mark.parametrize("change", [swap_parameters, another_parameter])
def test_which_parameter_has_a_name_counts_where_gradients_are_summed(
    wrapped: Pair, change: Callable[[Pair], None]
) -> None:
    layers = Layers(wrapped)
    layers.note()
    before, make = read(layers), layers.make()
    change(wrapped)
    assert not make.is_same()
    assert not layers.is_same()
    assert read(layers) != before


def test_parameters_that_are_back_in_their_places_are_the_same(wrapped: Pair) -> None:
    layers = Layers(wrapped)
    before = read(layers)
    swap_parameters(wrapped)
    layers.note()
    swap_parameters(wrapped)
    assert not layers.is_same()
    assert read(layers) == before


def test_buffers_and_frozen_parameters_are_summed_by_nobody(wrapped: Pair) -> None:
    layers = Layers(wrapped)
    wrapped.scales["a"].requires_grad_(False)
    layers.note()
    before = read(layers)
    swap_buffers(wrapped)
    wrapped.scales["a"] = nn.Parameter(torch.ones(2), requires_grad=False)
    assert layers.is_same()
    assert read(layers) == before


@pytest.fixture
def wrapped(known_wrappers: None) -> Iterator[Pair]:
    """In a wrapper that is known."""
    model = Pair()
    wrapper = DistributedDataParallel(model)
    yield model
    del wrapper


ORDERED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterDict({name: torch.ones(2) for name in "ab"})

net = Net()
job.tracked["net"] = net

def main():
    for number, (x, y) in enumerate(job.batches(DATA)):
        if number == 7:
            net.parts["a"] = net.parts.pop("a")

main()
"""


def test_another_order_of_parameters_is_told_with_its_line(tmp_path: Path) -> None:
    (told,) = [
        one for one in captures.run_in(tmp_path, ORDERED).differences() if "layers" in one.name
    ]
    assert (told.file, told.line > 0) == ("train.py", True)
    assert "in the order and under the names that they keep" in advice([told])
