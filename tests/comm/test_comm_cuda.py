"""Tensors on a GPU go through the groups' CPU communicators: staged, and right to the bit.

Two ranks share the first GPU. What they compute is compared with the same calls on the CPU.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live
from torch import nn

pytestmark = [
    pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="needs an NVIDIA GPU"),
    pytest.mark.parametrize("ranks", [2], indirect=True),
]


def every_call(rank: int, device: str, comm: str) -> dict[str, list[torch.Tensor]]:
    """Outputs by operation, on the CPU."""

    def values(count: int, seed: int = 0) -> torch.Tensor:
        chance = torch.Generator().manual_seed(10 * seed + rank)
        return torch.randn(count, generator=chance).to(device)

    found: dict[str, list[torch.Tensor]] = {}
    tensor = values(1000)
    dist.all_reduce(tensor)
    found["all_reduce"] = [tensor]
    strided = values(1000, 1).view(20, 50).t()
    dist.all_reduce(strided, dist.ReduceOp.MAX)
    found["strided"] = [strided]
    rooted = values(64, 2)
    dist.broadcast(rooted, 1)
    found["broadcast"] = [rooted]
    parts = [torch.empty(8, device=device) for _ in range(2)]
    dist.all_gather(parts, values(8, 3))
    found["all_gather"] = parts
    handles = [dist.all_reduce(values(4096, seed), async_op=True) for seed in range(4, 8)]
    for handle in handles:
        assert handle is not None
        handle.wait()
    if comm == "native":
        found |= calls_gloo_lacks(rank, values, device)
    return {op: [output.cpu() for output in outputs] for op, outputs in found.items()}


def calls_gloo_lacks(rank: int, values: Any, device: str) -> dict[str, list[torch.Tensor]]:
    exchanged, scattered = (torch.empty(n, device=device) for n in (32, 16))
    dist.all_to_all_single(exchanged, values(32, 8))
    dist.reduce_scatter_tensor(scattered, values(32, 9))
    gathered = [torch.empty(5, device=device) for _ in range(2)] if rank == 0 else None
    dist.gather(values(5, 10), gathered)
    letter = values(100_000, 11)
    dist.send(letter, 1) if rank == 0 else dist.recv(letter, 0)
    return {
        "all_to_all_single": [exchanged],
        "reduce_scatter_tensor": [scattered],
        "gather": gathered or [],
        "send": [letter],
    }


def compare_devices(rank: int, ranks: Ranks) -> list[str]:
    join_live(rank, ranks)
    expected = every_call(rank, "cpu", ranks.comm)
    found = every_call(rank, "cuda:0", ranks.comm)
    return [
        op
        for op, outputs in expected.items()
        if any(not torch.equal(a, b) for a, b in zip(outputs, found[op], strict=True))
    ]


def test_every_call_gives_the_bits_of_the_cpu(ranks: Ranks) -> None:
    assert ranks.run(compare_devices) == [[], []]


def train(rank: int, ranks: Ranks) -> list[float]:
    join_live(rank, ranks)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1)).cuda()
    model = nn.parallel.DistributedDataParallel(net, device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for step in range(20):
        chance = torch.Generator().manual_seed(100 * step + rank)
        loss = model(torch.randn(32, 64, generator=chance).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return [*losses, float(sum(p.detach().double().sum() for p in net.parameters()))]


def test_data_parallel_training_keeps_the_replicas_equal(ranks: Ranks) -> None:
    first, second = ranks.run(train)
    assert first[-1] == second[-1]
    assert first[19] < first[0]
