"""Two machines of two ranks each; within a machine the ranks add up, in the sandbox too."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--until", required=True, help="file whose existence lets the job end")
parser.add_argument("--raise", dest="raises", help="one of a machine's ranks does, in a sandbox")
parser.add_argument("--stand", help="file whose existence lets shadow steps go on")
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
machine, second = divmod(job.rank, 2)
pair = [dist.new_group([first, first + 1]) for first in (0, 2)][machine]
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
job.track(model=model, optimizer=optimizer)
done = torch.zeros(())


@job.step
def train_step(number: int) -> Tensor:
    if job.is_shadow and args.raises and second:
        raise ValueError("only the second")
    while job.is_shadow and args.stand and second and not os.path.exists(args.stand):
        time.sleep(0.05)
    x = torch.full((4, 8), number / 100)
    dist.all_reduce(x, group=pair)
    loss = model(x).square().mean()
    loss.backward()
    dist.all_reduce(done.fill_(os.path.exists(args.until)))
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for number in job.batches(range(10**9)):
    train_step(number)
    time.sleep(0.01)
    if done.item() > 0:
        break
