"""Calls that are listened to, and calls that are answered without peers."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live

from trainmover.comm import Call, Groups, ReplayMismatch, groups


class Record:
    """Keeps the outputs of every call by its key; serves them when `replaying`."""

    def __init__(self, replaying: dict[Any, list[torch.Tensor]] | None = None) -> None:
        self.kept: dict[Any, list[torch.Tensor]] = {}
        self.replaying = replaying

    def serve(self, call: Call) -> bool:
        if self.replaying is None or call.key not in self.replaying:
            return False
        for output, kept in zip(call.outputs, self.replaying[call.key], strict=True):
            output.copy_(kept)
        return True

    def done(self, call: Call) -> None:
        self.kept[call.key] = [output.clone() for output in call.outputs]


def script(rank: int) -> list[float]:
    """Sums, objects, a model and a subgroup: what a training script does in its first step."""
    half = dist.new_group([0, 1])
    total = torch.full((3,), float(rank + 1))
    handle = dist.all_reduce(total, async_op=True)
    assert handle is not None
    handle.wait()
    names: list[Any] = [None, None]
    dist.all_gather_object(names, f"rank{rank}", group=half)
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    dist.barrier()
    grad = model.module.weight.grad
    return [*total.tolist(), len(names[1]), float(grad.sum()), float(model.module.weight.sum())]


def record_then_replay(rank: int, ranks: Ranks) -> Any:
    record = Record()
    join_live(rank, ranks)
    groups.tap = record
    real = script(rank)
    groups.close()
    dist.destroy_process_group()
    if rank == 0:  # Its peer is gone from here on.
        return real, [replay(record.kept, ranks) for _ in range(2)], len(record.kept)
    return real


def replay(kept: dict[Any, list[torch.Tensor]], ranks: Ranks) -> Any:
    """As rank 0, whose process it is."""
    groups.sandbox()
    groups.tap = Record(kept)
    groups.rendezvous_store = dist.HashStore
    dist.init_process_group("gloo", rank=0, world_size=ranks.size)
    replayed = script(0)
    with pytest.raises(ReplayMismatch, match="allreduce of group"):
        dist.all_reduce(torch.ones(77))
    dist.destroy_process_group()
    groups.close()
    return replayed


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_a_recorded_rank_is_replayed_alone_as_often_as_wanted(ranks: Ranks) -> None:
    (real, replays, kept), _ = ranks.run(record_then_replay)
    assert replays == [real, real]
    assert kept >= 6


def test_a_group_of_one_needs_neither_peers_nor_sockets() -> None:
    registry = Groups()
    registry.use_store(dist.HashStore(), 1)
    gate = registry.private("gate", rank=0, size=1)
    value = torch.tensor([5])
    gate.all_reduce(value)
    assert value.item() == 5
    assert registry.switchover(2, dist.HashStore()).opened == 0
    gate.all_reduce(value)
    registry.close()


def alone(rank: int, ranks: Ranks) -> Any:
    join_live(rank, ranks)
    gathered, scattered = [torch.zeros(2)], torch.zeros(2)
    dist.all_gather(gathered, torch.ones(2))
    dist.reduce_scatter(scattered, [torch.full((2,), 3.0)])
    whole = torch.zeros(2)
    dist.all_to_all_single(whole, torch.full((2,), 4.0))
    dist.barrier()
    dist.monitored_barrier()
    groups.drain("test")
    dist.all_reduce(whole)
    return gathered[0].tolist(), scattered.tolist(), whole.tolist()


@pytest.mark.parametrize("ranks", [1], indirect=True)
def test_a_world_of_one_computes_every_operation(ranks: Ranks) -> None:
    assert ranks.run(alone) == [([1, 1], [3, 3], [4, 4])]
