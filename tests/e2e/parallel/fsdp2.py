"""Fully sharded over two ranks; the script itself averages with those who hold the same shards."""

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, pause, train
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import trainmover as tm

args = flags()
job = tm.attach()
dist.init_process_group(args.backend)
members = [[0, 2], [1, 3]]
replicas, _ = dist.new_subgroups_by_enumeration(members)
mesh = init_device_mesh(args.device, (2, 2), mesh_dim_names=("replica", "shard"))["shard"]
torch.manual_seed(1)
layers = [nn.Linear(WIDTH, 33), nn.GELU(), nn.Dropout(0.1), nn.Linear(33, WIDTH)]
model = nn.Sequential(*layers).to(args.device)
low = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in (model[0], model[3], model):
    fully_shard(layer, mesh=mesh, mp_policy=low, reshard_after_forward=layer is not model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


def average() -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad.to_local(), dist.ReduceOp.AVG, group=replicas)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    losses = []
    for half_x, half_y in zip(x.chunk(2), y.chunk(2), strict=True):  # gradient accumulation
        pause(job, args)
        model.set_requires_gradient_sync(bool(losses))
        loss = (model(half_x).float() - half_y).square().mean()
        loss.backward()
        losses.append(loss.detach())
    average()
    job.report(loss=sum(losses))
    optimizer.step()
    optimizer.zero_grad()
    return sum(losses)


train(job, args, batches(job, job.rank, job.world_size), train_step)
