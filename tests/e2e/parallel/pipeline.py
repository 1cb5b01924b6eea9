"""A pipeline of three stages, one forward one backward; each is data parallel over two ranks."""

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, optimizer_for, pause, train
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import trainmover as tm

STAGES = 3
args = flags()
job = tm.attach()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (STAGES, 2), mesh_dim_names=("pipe", "data"))
pipe, data = mesh["pipe"], mesh["data"]
number, last = pipe.get_local_rank(), pipe.get_local_rank() == STAGES - 1
torch.manual_seed(1 + number)
layers = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, WIDTH))
part = nn.parallel.DistributedDataParallel(layers, process_group=data.get_group())
stage = PipelineStage(part, number, STAGES, torch.device("cpu"), group=pipe.get_group())
schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
optimizer = optimizer_for(args, part.parameters())
job.track(model=part, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    losses: list[Tensor] = []
    pause(job, args)
    if number == 0:
        schedule.step(x)
    elif last:
        schedule.step(target=y, losses=losses)
    else:
        schedule.step()
    loss = torch.stack(losses).mean().detach() if last else torch.zeros(())
    dist.broadcast(loss, group=pipe.get_group(), group_src=STAGES - 1)
    pause(job, args)
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss


train(job, args, batches(job, data.get_local_rank(), 2), train_step)
