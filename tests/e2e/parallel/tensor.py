"""Tensor parallel within pairs, data parallel between them."""

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, optimizer_for, pause, train
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

import trainmover as tm

CLASSES = 8
args = flags()
job = tm.attach()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
torch.manual_seed(1)
model = nn.Sequential(
    nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH), nn.Dropout(0.1), nn.LayerNorm(WIDTH),
    nn.Linear(WIDTH, CLASSES),
)  # fmt: skip
logits_stay_cut = ColwiseParallel(use_local_output=False)
plan = {"0": ColwiseParallel(), "2": RowwiseParallel(), "5": logits_stay_cut}
parallelize_module(model, mesh["tensor"], plan)
optimizer = optimizer_for(args, model.parameters())
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + mesh["data"].get_local_rank())  # dropout: the same on both of a pair


def average() -> None:
    for parameter in model.parameters():
        local = getattr(parameter.grad, "_local_tensor", parameter.grad)
        dist.all_reduce(local, dist.ReduceOp.AVG, group=mesh["data"].get_group())


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    pause(job, args)
    with loss_parallel():
        loss = nn.functional.cross_entropy(model(x), y[:, 0].abs().mul(3).long() % CLASSES)
        pause(job, args)
        loss.backward()
    average()
    whole = loss.detach().full_tensor() if hasattr(loss, "full_tensor") else loss.detach()
    job.report(loss=whole)
    optimizer.step()
    optimizer.zero_grad()
    return whole


train(job, args, batches(job, mesh["data"].get_local_rank(), 2), train_step)
