"""Of a ZeroRedundancyOptimizer the shard that is here is tracked, with the settings outside."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from tests.again import Again
from trainmover.errors import StateMismatch, UserError
from trainmover.state import encode
from trainmover.state.kinds.optimizers.zero import shard_of
from trainmover.state.tracked import Tracked

pytestmark = pytest.mark.usefixtures("group_of_one")


def build(seed: int) -> tuple[Tracked, Any]:
    torch.manual_seed(seed)
    model = nn.Linear(3, 1)
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    tracked = Tracked()
    tracked.add("optimizer", zero)
    tracked.add("model", model)
    return tracked, zero


def step(tracked: Tracked, zero: Any) -> None:
    model: Any = tracked["model"]
    model(torch.ones(1, 3)).sum().backward()
    zero.step()
    zero.zero_grad()


def test_its_shard_and_its_settings_move() -> None:
    (source, zero), (joiner, there) = build(1), build(2)
    step(source, zero)
    zero.param_groups[0]["lr"] = 0.05
    step(source, zero)
    header, tensors = source.bulk_header()
    targets = joiner.bulk_destinations(header)
    for target, tensor in zip(targets, tensors, strict=True):
        target.copy_(tensor)
    joiner.load_bulk_header(header, targets)
    joiner.load_small(source.small_states())
    assert there.param_groups[0]["lr"] == 0.05
    assert joiner.digest() == source.digest()
    step(source, zero)
    step(joiner, there)
    assert joiner.digest() == source.digest()


def test_one_that_updates_inside_backward_is_refused() -> None:
    tracked, zero = build(1)
    zero._overlap_with_ddp = True
    with pytest.raises(UserError, match="overlap_with_ddp"):
        tracked.add("optimizer", zero)


def test_others_are_none() -> None:
    assert shard_of(torch.optim.SGD([torch.ones(1)])) is None


def test_a_group_added_to_it_is_gone_again_for_a_retry_and_moves() -> None:
    (source, zero), (joiner, there) = build(1), build(2)
    extra = nn.Linear(2, 2)
    for tracked in (source, joiner):
        tracked.add("extra", extra)
    before = Again(source, (zero,))
    for _ in range(2):
        zero.add_param_group({"params": list(extra.parameters()), "lr": 0.5})
        assert len(zero.param_groups) == len(zero.optim.param_groups) == 2
        assert before.put_back() == ""
        assert len(zero.param_groups) == len(zero.optim.param_groups) == 1
    zero.add_param_group({"params": list(extra.parameters()), "lr": 0.5})
    with pytest.raises(StateMismatch, match="2 parameter groups"):
        joiner.load_small(source.small_states())
    joiner.bulk_destinations(source.bulk_header()[0])
    joiner.load_small(source.small_states())
    assert there.param_groups[1]["lr"] == 0.5
    assert len(there.optim.param_groups) == 2


def test_gradients_on_the_shards_of_other_ranks_are_waited_for_too() -> None:
    tracked, zero = build(1)
    model: Any = tracked["model"]
    zero.optim.param_groups[0]["params"] = [model.bias]  # The weight is another rank's.
    model(torch.ones(1, 3)).sum().backward()
    assert encode.decode(tracked.small_states()["model.gradients"])["values"].keys() == {0, 1}
