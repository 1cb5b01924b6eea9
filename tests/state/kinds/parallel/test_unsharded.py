"""What FSDP2 keeps to itself between two steps comes back bit for bit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from trainmover.state import encode
from trainmover.state.kinds import gradients
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.distributed.fsdp import groups_of

pytestmark = pytest.mark.usefixtures("group_of_one")


def sharded(reduce_dtype: torch.dtype | None) -> tuple[Any, Tracked]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    policy = MixedPrecisionPolicy(reduce_dtype=reduce_dtype)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    tracked = Tracked()
    tracked.add("model", model)
    return model, tracked


def accumulate(model: Any, seed: int) -> None:
    model.set_requires_gradient_sync(False)
    backward(model, seed)


def backward(model: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    model(torch.randn(4, 3, generator=generator)).square().sum().backward()


def reduced(model: Any) -> list[Tensor]:
    """The next pass makes gradients of all."""
    model.set_requires_gradient_sync(True)
    backward(model, 9)
    return [parameter.grad.to_local() for parameter in model.parameters()]


@pytest.mark.parametrize("reduce_dtype", [None, torch.float64])
@pytest.mark.parametrize("passes", [0, 1, 2])
def test_they_are_put_back_and_travel(reduce_dtype: torch.dtype | None, passes: int) -> None:
    model, tracked = sharded(reduce_dtype)
    for seed in range(passes):
        accumulate(model, seed)
    kept = {name: bytes(state) for name, state in tracked.small_states().items()}
    accumulate(model, 7)  # An attempt that is aborted.
    tracked.load_small(kept)
    other, others = sharded(reduce_dtype)
    accumulate(other, 8)
    others.load_small(kept)
    assert others.small_states() == tracked.small_states() == kept
    calm, _ = sharded(reduce_dtype)
    for seed in range(passes):
        accumulate(calm, seed)
    expected = reduced(calm)
    for found in (reduced(model), reduced(other)):
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert encode.decode(tracked.small_states()["model.unsharded"])["values"] == {}


def test_more_than_a_record_carries_is_bulk_state(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tracked = sharded(None)
    monkeypatch.setattr(gradients, "BYTES_MAX", 10)
    assert "model.unsharded" not in tracked.bulk_names()
    accumulate(model, 1)
    assert encode.decode(tracked.small_states()["model.unsharded"])["values"] == {}
    header, tensors = tracked.bulk_header()
    other, others = sharded(None)
    into = others.bulk_destinations(header)
    for there, here in zip(into, tensors, strict=True):
        there.copy_(here)
    others.load_bulk_header(header, into)
    others.load_small(tracked.small_states())
    assert others.replica_digest() == tracked.replica_digest()
    for a, b in zip(reduced(model), reduced(other), strict=True):
        assert torch.equal(a, b)


def test_what_is_reduced_in_part_travels() -> None:
    """As HSDP keeps it."""
    model, tracked = sharded(None)
    (group,) = groups_of(model[0])
    group._partial_reduce_output = torch.ones(3)
    kept = tracked.small_states()
    other, others = sharded(None)
    others.load_small(kept)
    (there,) = groups_of(other[0])
    assert torch.equal(there._partial_reduce_output, torch.ones(3))
    group._partial_reduce_output = there._partial_reduce_output = None


def test_a_module_that_is_not_sharded_has_none() -> None:
    tracked = Tracked()
    tracked.add("model", nn.Linear(2, 2))
    assert "model.unsharded" not in tracked.small_states()


@pytest.mark.parametrize("names", [("model", "optimizer"), ("net", "adam")])
@pytest.mark.parametrize("whole_there", [False, True])
@pytest.mark.parametrize("whole_here", [False, True])
def test_parameters_that_are_whole_for_now_are_known_by_their_names(
    names: tuple[str, str], whole_there: bool, whole_here: bool
) -> None:
    """An evaluation between two steps leaves them so. An optimizer has their shards."""
    there, here = trained(names, whole=whole_there), trained(names, whole=whole_here, seed=5)
    assert (there.is_gathered, here.is_gathered) == (whole_there, whole_here)
    header, tensors = there.bulk_header()
    into = here.bulk_destinations(header)
    with torch.no_grad():
        for one, tensor in zip(into, tensors, strict=True):
            one.copy_(tensor)
    here.load_bulk_header(header, into)
    assert here.replica_digest() == there.replica_digest()


def test_what_was_exchanged_is_found_while_parameters_are_whole() -> None:
    """The optimizer trains one of two layers."""
    there, here = trained(("model", "optimizer")), trained(("model", "optimizer"), whole=True)
    optimizer: Any = there["optimizer"]
    for parameter in optimizer.param_groups[0]["params"][2:]:
        del optimizer.state[parameter]
    del optimizer.param_groups[0]["params"][2:]
    header, _ = there.bulk_header()
    here.bulk_destinations(header)
    model: Any = here["model"]
    trains: Any = here["optimizer"]
    parameters = [*map(id, trains.param_groups[0]["params"])]
    model.reshard()
    assert parameters == [*map(id, model.parameters())][:2]


def trained(names: tuple[str, str], *, whole: bool = False, seed: int = 1) -> Tracked:
    torch.manual_seed(seed)
    model: Any = fully_shard(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    tracked = Tracked()
    for name, one in zip(names, (model, optimizer), strict=True):
        tracked.add(name, one)
    backward(model, seed)
    optimizer.step()
    if whole:
        with torch.no_grad():
            model(torch.ones(4, 3))
    return tracked
