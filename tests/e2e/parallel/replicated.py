"""Plain data parallel; with `--optimizer zero` each rank alone holds a part of its state."""

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, optimizer_for, pause, train
from torch import Tensor, nn

import trainmover as tm

args = flags()
job = tm.attach()
dist.init_process_group(args.backend)
torch.manual_seed(1)
layers = [
    nn.Linear(WIDTH, 24),
    nn.BatchNorm1d(24),
    nn.GELU(),
    nn.Dropout(0.1),
    nn.Linear(24, WIDTH),
]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(args.device))
optimizer = optimizer_for(args, model.parameters())
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    pause(job, args)
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    pause(job, args)
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss


train(job, args, batches(job, job.rank, job.world_size), train_step)
