"""A small job that makes process groups while it trains.

--when  step    in every step: made, used and destroyed, a mesh and subgroups now and then too
        pass    before every pass over the data; destroyed behind it
        lazy    in the first step that finds none, once there is the file --go; then kept
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--when", default="step")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pace", type=float, default=0.02)
parser.add_argument("--go", default="")
parser.add_argument("--rows", type=int, default=16, help="of each rank in a pass")
parser.add_argument("--hurry", default="", help="file whose existence ends the pace")
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
world = list(range(job.world_size))
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = TensorDataset(
    torch.randn(args.rows * job.world_size, 8, generator=torch.Generator().manual_seed(5))
)
sampler = DistributedSampler(data, shuffle=True, seed=3)
loader = DataLoader(data, batch_size=2, sampler=sampler)
kept = {}


def summed(value, group):
    out = value.detach().clone()
    dist.all_reduce(out, group=group)
    return out


def made_in_step(loss):
    """The sum of losses over all, by way of groups that live in this step only."""
    pair = dist.new_group(world[:2])
    other = dist.new_group(world[1:])
    total = torch.zeros(())
    if job.rank < 2:
        total += summed(loss, pair)
        dist.destroy_process_group(pair)
    if job.rank > 0:
        total += summed(loss, other)
        dist.destroy_process_group(other)
    if (job.steps + 1) % 5 == 0:
        mine, _ = dist.new_subgroups(1)
        mesh = init_device_mesh("cpu", (job.world_size,), mesh_dim_names=("all",))
        total += summed(loss, mine) + summed(loss, mesh.get_group())
        dist.destroy_process_group(mine)
        mesh2d = init_device_mesh("cpu", (1, job.world_size), mesh_dim_names=("a", "b"))
        total += summed(loss, mesh2d.get_group("a")) + summed(loss, mesh2d.get_group("b"))
        dist.destroy_process_group(mesh2d.get_group("a"))
    return summed(total, None)


@job.step
def train(batch):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    extra = summed(loss, None)
    if args.when == "step":
        extra = made_in_step(loss)
    if args.when == "pass":
        extra = summed(loss, kept["pass"])
    if args.when == "lazy" and summed(torch.tensor(float(os.path.exists(args.go))), None):
        if "lazy" not in kept:
            kept["lazy"] = dist.new_group(world)
        extra = summed(loss, kept["lazy"])
    for parameter in model.parameters():
        parameter.grad.mul_(1 + 0.01 * torch.tanh(extra.sum()))
    job.report(loss=loss, extra=extra.sum())
    optimizer.step()


while job.steps < args.steps:
    if args.when == "pass":
        kept["pass"] = dist.new_group(world)
    for (batch,) in job.batches(loader):
        train(batch)
        time.sleep(0 if os.path.exists(args.hurry) else args.pace)
        if job.steps >= args.steps:
            break
    if args.when == "pass":
        dist.destroy_process_group(kept.pop("pass"))
