"""Models and optimizers are found where scripts keep them, by the name of the shortest path."""

import functools
from types import SimpleNamespace

import torch
from torch import nn

from trainmover.sandbox.process.isolation import Isolation
from trainmover.worker.auto.found import found


def optimizer_of(*models: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([one for model in models for one in model.parameters()], lr=0.1)


def test_parts_of_another_model_and_what_has_no_state_are_left_out() -> None:
    body = nn.Linear(2, 2)
    model = nn.Sequential(body, nn.ReLU())
    names = {"body": body, "model": model, "loss": nn.MSELoss(), "optimizer": optimizer_of(model)}
    assert [*found([names])] == ["model", "optimizer"]


def test_containers_objects_and_closures_are_looked_into() -> None:
    teacher, student, hidden = nn.Linear(1, 1), nn.Linear(1, 1), nn.BatchNorm1d(1)
    trainer = SimpleNamespace(models=[student], optimizers={"sgd": optimizer_of(student)})

    def forward(x: torch.Tensor) -> torch.Tensor:
        return hidden(x)

    names = {"trainer": trainer, "forward": forward, "teach": functools.partial(teacher)}
    assert found([names]) == {
        "forward.hidden": hidden,
        "trainer.models[0]": student,
        "trainer.optimizers['sgd']": trainer.optimizers["sgd"],
    }


def test_the_search_does_not_go_through_ours() -> None:
    """From a process group one comes to signals' handlers, and to a trainer of a run before."""
    kept = Isolation.__new__(Isolation)
    vars(kept)["left"] = nn.Linear(1, 1)
    assert found([{"group": SimpleNamespace(inside=kept)}]) == {}


def test_the_first_names_count() -> None:
    model = nn.Linear(1, 1)
    assert [*found([{"net": model}, {"model": model}])] == ["net"]


def test_data_and_rings_do_not_hold_up_the_search() -> None:
    ring: list[object] = []
    ring.append(ring)
    model = nn.Linear(1, 1)
    many = {number: nn.Linear(1, 1) for number in range(2000)}
    assert [*found([{"ring": ring, "many": many, "model": model}])] == ["model"]
