"""The make of a model is known to have changed whoever has looked at it meanwhile; and what the
code of layers relies on, though the script never reads it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainmover.state.script.code.relied_on import relied_on
from trainmover.state.script.things.layers import Layers
from trainmover.state.script.things.things import Things
from trainmover.worker.step.before import Moving


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


def test_a_step_that_changes_the_layers_is_not_run_again() -> None:
    model = net()
    moving = Moving(Things())
    moving.note(Layers(model))
    assert not moving.moved()
    hook(model)
    assert "layers or hooks" in moving.moved()


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
