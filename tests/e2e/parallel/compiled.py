"""Data parallel and compiled: torch.compile around DistributedDataParallel.

With --change-at later steps compile one more function and make one more collective.
"""

import os

os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")  # Trying it out takes longer than the rest.

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, optimizer_for, pause, train
from torch import Tensor, nn

import trainmover as tm

torch._inductor.config.compile_threads = 1  # Here, not in a process that is started for it.


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(WIDTH, 32), nn.LayerNorm(32)
        self.down = nn.Linear(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.norm(nn.functional.gelu(self.up(x))))


args = flags()
job = tm.attach()
dist.init_process_group(args.backend)
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(Net().to(args.device))
compiled = torch.compile(model)
optimizer = optimizer_for(args, model.parameters())
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


@torch.compile
def size_of(x: Tensor) -> Tensor:
    return (x.sigmoid() * x).square().mean()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    pause(job, args)
    x = x + 0.01 * torch.randn_like(x)
    loss = (compiled(x) - y).square().mean()
    if args.change_at and job.steps >= args.change_at:
        size = size_of(model.module.up.weight)
        dist.all_reduce(common := size.detach().clone())
        loss = loss + size * common
    pause(job, args)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


train(job, args, batches(job, job.rank, job.world_size), train_step)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"], "nothing was compiled"
