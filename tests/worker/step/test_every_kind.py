"""Whatever of torch's has a state can be tracked: a step that fails leaves it as it was, and
another process can be given it."""

import inspect
import warnings
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler, swa_utils

from tests.again import Again
from trainmover.errors import TrainmoverError
from trainmover.state.tracked import Tracked

SHAPELESS = {name for name in vars(nn) if name.startswith("Lazy")}
OTHERS = {
    "scaler": lambda: torch.amp.GradScaler("cpu"),
    "scaler that is off": lambda: torch.amp.GradScaler("cpu", enabled=False),
    "scripted model": lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))),
    "traced model": lambda: torch.jit.trace(nn.BatchNorm1d(2).eval(), torch.zeros(2, 2)),
    "average": lambda: swa_utils.AveragedModel(nn.BatchNorm1d(2)),
}


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1)


def arguments() -> Iterator[tuple[Any, ...]]:
    """What constructors are given, in turn."""
    yield from ((), (2,), (2, 2), (2, 2, 2), (4, 4, 1), (nn.Linear(2, 2),), ([nn.Linear(2, 2)],))
    yield ([torch.zeros(2, requires_grad=True)],)
    yield from ((optimizer(), *more) for more in [(), (2,), (lambda step: 1.0,), ([1, 2],)])
    yield from (
        (optimizer(), *more) for more in [(0.1, 10), ([lr_scheduler.ConstantLR(optimizer())],)]
    )


def made(kind: type) -> Any:
    for given in arguments():
        with suppress(TypeError, ValueError, AttributeError, RuntimeError, LookupError):
            return kind(*given)
    return None


def of(module: ModuleType) -> dict[str, Any]:
    kinds = {n: one for n, one in vars(module).items() if inspect.isclass(one) and n[:1] != "_"}
    found = {n: made(kind) for n, kind in kinds.items() if hasattr(kind, "state_dict")}
    return {name: value for name, value in found.items() if value is not None}


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    EVERY = {
        **of(nn),
        **of(torch.optim),
        **of(lr_scheduler),
        **{name: make() for name, make in OTHERS.items()},
    }


def test_most_of_torch_is_among_them() -> None:
    assert len(EVERY) > 150
    assert {"LSTM", "Transformer", "MultiheadAttention", "AdamW", "LBFGS", "OneCycleLR"} <= {*EVERY}


@pytest.mark.parametrize("name", EVERY)
def test_it_is_put_back_and_given_to_another(name: str) -> None:
    tracked = Tracked()
    if name in SHAPELESS:
        with pytest.raises(TrainmoverError, match="has no shape yet"):
            tracked.add("it", EVERY[name])
        return
    tracked.add("it", EVERY[name])
    small, digest = tracked.small_states(), tracked.digest()
    before = Again(tracked)
    assert before.put_back() == ""
    header, _ = tracked.bulk_header()
    tracked.load_bulk_header(header, tracked.bulk_destinations(header))
    tracked.load_small(small)
    assert (tracked.small_states(), tracked.digest()) == (small, digest)
    assert tracked.signature()
