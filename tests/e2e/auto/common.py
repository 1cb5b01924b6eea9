"""What the scripts of this folder share. No line of them names trainmover."""

import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def begin() -> tuple[int, int]:
    """Join the ranks; returns rank and how many there are."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    return dist.get_rank(), dist.get_world_size()


def network() -> DistributedDataParallel:
    parts = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)
    return DistributedDataParallel(nn.Sequential(*parts))


def samples(count: int) -> tuple[Tensor, Tensor]:
    """[count, 8] float32, and their sums, [count, 1]."""
    x = torch.randn(count, 8, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1, keepdim=True)


def pace() -> None:
    """A step takes some time."""
    time.sleep(float(os.environ.get("PACE_S", "0.01")))
