"""A pipeline of two stages, GPipe."""

import kit
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

job, args = kit.begin()
first = job.rank == 0
torch.manual_seed(1 + job.rank)
part = nn.Sequential(nn.Linear(kit.WIDTH, kit.WIDTH), nn.Tanh())
stage = PipelineStage(part, job.rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(part.parameters(), lr=1e-2)
job.track(part=part, optimizer=optimizer)


@job.step
def train_step(x: Tensor) -> Tensor:
    kit.pace(job, args)
    losses: list[Tensor] = []
    schedule.step(x) if first else schedule.step(target=x.flip(1), losses=losses)
    loss = torch.zeros(()) if first else torch.stack(losses).mean().detach()
    dist.broadcast(loss, 1)
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss


data = kit.dataset().tensors[0].split(8)
for x in kit.until(job, args, job.batches(data, passes=None)):
    train_step(x)
