"""Buckets of DistributedDataParallel are given to one that has not rebuilt its own, or back."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainmover.torch_internals.distributed import ddp

KINDS: list[dict[str, bool]] = [{}, {"static_graph": True}, {"gradient_as_bucket_view": True}]


@pytest.fixture(autouse=True)
def group(monkeypatch: pytest.MonkeyPatch, group_of_one: None) -> None:
    """In which every rebuild is known."""
    forward: Any = getattr(DistributedDataParallel, "_pre_forward")  # noqa: B009
    monkeypatch.setattr(DistributedDataParallel, "_pre_forward", forward)
    ddp.watch_buckets()


def wrapped(**options: Any) -> DistributedDataParallel:
    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Linear(40, 40) for _ in range(4)])
    return DistributedDataParallel(net, bucket_cap_mb=0.01, **options)


def pass_through(wrapper: DistributedDataParallel, seed: int) -> list[Tensor]:
    """Forward and backward; the gradients."""
    torch.manual_seed(seed)
    wrapper.zero_grad()
    wrapper(torch.randn(2, 40)).square().sum().backward()
    return [p.grad.clone() for p in wrapper.parameters() if p.grad is not None]


@pytest.mark.parametrize("options", KINDS)
def test_one_that_was_never_used_is_given_the_buckets_of_another(options: dict[str, bool]) -> None:
    used, fresh = wrapped(**options), wrapped(**options)
    seen = []
    for seed in range(4):
        seen.append(ddp.buckets_of(used))
        pass_through(used, seed)
    buckets = ddp.buckets_of(used)
    assert buckets is not None
    assert len(buckets) > 1
    assert sorted(number for bucket in buckets for number in bucket) == list(range(8))
    assert seen.index([]) == seen.index(buckets) - 1
    assert seen[0] is None
    ddp.set_buckets(fresh, buckets)
    assert ddp.buckets_of(fresh) == buckets
    for seed in range(4):
        expected = pass_through(used, seed)
        assert all(map(torch.equal, pass_through(fresh, seed), expected))
    assert ddp.buckets_of(fresh) == buckets


def test_one_that_has_rebuilt_is_put_back_and_does_so_again() -> None:
    wrapper = wrapped()
    for seed in range(15):  # Torch itself logs the first ten.
        pass_through(wrapper, seed)
    buckets = ddp.buckets_of(wrapper)
    kept = pass_through(wrapper, 0)
    for state in (None, []):
        ddp.set_buckets(wrapper, state)
        assert ddp.buckets_of(wrapper) == state
        now = [p.grad for p in wrapper.parameters() if p.grad is not None]
        assert all(map(torch.equal, now, kept))
    pass_through(wrapper, 1)
    in_order = ddp.buckets_of(wrapper)
    assert in_order
    assert in_order != buckets  # Nobody knows any more in which order gradients came.
    ddp.set_buckets(wrapper, None)
    pass_through(wrapper, 1)
    assert ddp.buckets_of(wrapper) == []
    pass_through(wrapper, 1)
    assert ddp.buckets_of(wrapper) == buckets


def test_one_that_has_rebuilt_sums_in_its_first_buckets_again() -> None:
    """Who takes a rank from a snapshot of before has not rebuilt: both must sum alike."""
    sums: list[int] = []

    def hook(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        sums.append(len(bucket.parameters()))
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    wrapper = wrapped()
    wrapper.register_comm_hook(None, hook)
    pass_through(wrapper, 0)
    first = [*sums]
    for seed in range(3):
        pass_through(wrapper, seed)
    assert sums[-len(first) :] != first
    ddp.set_buckets(wrapper, None)
    sums.clear()
    pass_through(wrapper, 0)
    assert sums == first


def test_a_backward_that_does_not_reduce_notes_nothing() -> None:
    wrapper = wrapped()
    with wrapper.no_sync():
        pass_through(wrapper, 0)
    assert ddp.buckets_of(wrapper) is None


def test_one_that_looks_for_unused_parameters_never_rebuilds() -> None:
    wrapper = wrapped(find_unused_parameters=True)
    for seed in range(3):
        pass_through(wrapper, seed)
    assert ddp.buckets_of(wrapper) is None
    ddp.set_buckets(wrapper, [[0, 1], [2, 3, 4, 5, 6, 7]])
    assert ddp.buckets_of(wrapper) is None


def test_buckets_that_a_call_has_left_that_was_cut_short_are_not_summed_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its integers are zero: no bucket at all, in which a backward would look for its gradients."""
    wrapper = wrapped()
    expected = pass_through(wrapper, 0)
    left = ddp._Answers([])
    left._values = iter([[0] * 9, []])
    reducer: Any = wrapper.reducer
    reducer._update_process_group(left)
    with torch.enable_grad():
        wrapper._pre_forward()
    reducer._update_process_group(wrapper.process_group)
    assert ddp.buckets_of(wrapper) == [list(range(8))]
    assert all(map(torch.equal, pass_through(wrapper, 0), expected))


def test_a_static_graph_is_learned_by_a_backward_only() -> None:
    wrapper = wrapped(static_graph=True)
    assert ddp.learns_its_graph(wrapper)
    assert not ddp.learns_its_graph(wrapped())
    for seed in range(2):
        pass_through(wrapper, seed)
    assert not ddp.learns_its_graph(wrapper)
