"""A small job that loads with processes, for what becomes of those, and for what earlier runs of
this script leave in the process."""

import argparse
import gc
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=1)
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--pace", type=float, default=0.03)
parser.add_argument("--until", default="", help="file whose existence ends the job, before --steps")
args = parser.parse_args()

gc.collect()
mine = [one for one in gc.get_objects() if isinstance(one, type) and one.__module__ == "__main__"]
assert "Items" not in {one.__name__ for one in mine}, "an earlier run is still in memory"

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4096, 4), nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
job.track(model=model, optimizer=optimizer)


class Items(Dataset[tuple[Tensor, Tensor]]):
    """Large enough to come by shared memory, and drawn from a generator of their own."""

    def __len__(self) -> int:
        return 4 * 2 * 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        item = torch.rand(4096, generator=torch.Generator().manual_seed(index))
        return item, item[:1].sin()


@job.step
def train_step(inputs: Tensor, targets: Tensor) -> None:
    time.sleep(args.pace)
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


items = Items()
loader = DataLoader(items, 4, sampler=DistributedSampler(items), num_workers=args.workers)
for inputs, targets in job.batches(loader):
    train_step(inputs, targets)
    over = torch.tensor(float(bool(args.until) and os.path.exists(args.until)))
    dist.all_reduce(over)  # All end after the same step.
    if over.item() > 0 or job.steps >= args.steps:
        break
