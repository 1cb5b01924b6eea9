"""FSDP2 over all ranks: every rank alone holds its shard of parameters and optimizer."""

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, optimizer_for, pause, train
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import trainmover as tm

args = flags()
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(WIDTH, 33), nn.GELU(), nn.Dropout(0.1), nn.Linear(33, WIDTH))
for layer in (model[0], model[3]):
    fully_shard(layer)
fully_shard(model)
optimizer = optimizer_for(args, model.parameters())
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
job.track(model=model, optimizer=optimizer, scheduler=scheduler)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    pause(job, args)
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    pause(job, args)
    job.report(loss=loss)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    return loss


train(job, args, batches(job, job.rank, job.world_size), train_step)
