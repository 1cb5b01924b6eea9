"""Hybrid sharded data parallel: fully_shard over a mesh of replicas x shards."""

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, optimizer_for, pause, train
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import trainmover as tm

args = flags()
job = tm.attach()
dist.init_process_group(args.backend)
mesh = init_device_mesh(args.device, (2, job.world_size // 2), mesh_dim_names=("replica", "shard"))
torch.manual_seed(1)
model = nn.Sequential(
    *[nn.Sequential(nn.Linear(WIDTH, 33), nn.GELU(), nn.Linear(33, WIDTH)) for _ in range(2)],
    nn.Dropout(0.1),
).to(args.device)
for layer in [*list(model)[:2], model]:
    fully_shard(layer, mesh=mesh)
optimizer = optimizer_for(args, model.parameters())
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
job.track(model=model, optimizer=optimizer, scheduler=scheduler)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    pause(job, args)
    loss = (model(x) - y).square().mean()
    pause(job, args)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    job.report(loss=loss, norm=norm.full_tensor())
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    return loss.detach()


train(job, args, batches(job, job.rank, job.world_size), train_step)
