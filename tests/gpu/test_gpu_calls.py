"""Every call over NCCL itself, on one GPU, against the same call on the CPU.

NCCL's order of adding is its own: sums are compared within rounding, all else bit for bit.
"""

from typing import Any

import pytest
import test_nccl_calls
import torch
import torch.distributed as dist
from comm_ranks import Ranks
from one_gpu import ON_GPU, pass_for_a_host

from trainmover.comm.groups import groups
from trainmover.communicators import NCCL
from trainmover.state.proof import device_digest

pytestmark = [ON_GPU, pytest.mark.parametrize("ranks", [3], indirect=True)]
ADDS = ("SUM", "PRODUCT", "complex", "strided", "reduce", "singles", "coalesced", "futures")


def outputs(rank: int, ranks: Ranks, device: str, gpu: str) -> dict[str, list[torch.Tensor]]:
    pass_for_a_host()
    torch.cuda.set_device(0)
    test_nccl_calls.DEVICE, groups.gpu = device, gpu
    store = ranks.connect()
    groups.use_store(store, 1)
    script = dist.PrefixStore("script", store)
    backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=script, rank=rank, world_size=ranks.size)
    found = test_nccl_calls.every_call(rank, ranks.size, dist.group.WORLD)
    return {name: [output.cpu() for output in each] for name, each in found.items()}


def compare(rank: int, ranks: Ranks) -> list[str]:
    over_nccl = outputs(rank, ranks, "cuda", NCCL)
    test_nccl_calls.DEVICE, groups.gpu = "cpu", "staged"
    plain: Any = dist.new_group(backend="gloo")
    wrong = []
    for name, expected in test_nccl_calls.every_call(rank, ranks.size, plain).items():
        for one, other in zip(over_nccl[name], expected, strict=True):
            near = any(word in name for word in ADDS)
            right = torch.allclose(one, other, 1e-4, 1e-4) if near else torch.equal(one, other)
            wrong += [] if right else [name]
    return wrong


@pytest.mark.parametrize("comm", ["native"], indirect=True)
def test_every_call_is_right(ranks: Ranks) -> None:
    assert ranks.run(compare) == [[]] * 3


def hashes(rank: int, ranks: Ranks) -> bool:
    chance = torch.Generator().manual_seed(rank)
    tensor = torch.randn(3_000_001, generator=chance)
    tensors = [tensor, tensor[:1_000], tensor[:0]]
    return device_digest.digests(tensors) == device_digest.digests([t.cuda() for t in tensors])


@pytest.mark.parametrize("comm", ["native"], indirect=True)
def test_a_device_hashes_as_the_host_would(ranks: Ranks) -> None:
    assert ranks.run(hashes) == [True] * 3
