"""FSDP2: every rank alone holds its shards; an update is made of two batches, and clipped."""

import sys

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

rank, world = common.begin()
mesh = dist.init_device_mesh("cpu", (world,))
model = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3)])
for part in model:
    fully_shard(part, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(rank)
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
    for _ in range(2):
        loss = model(torch.randn(4, 16, generator=generator)).square().mean()
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    common.pace()
    if rank == 0 and step % 5 == 0:
        print(f"step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
