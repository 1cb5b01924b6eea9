"""What a script does behind its last step.

--tail  print    its last loss and what it has counted
        barrier  waits for all, then prints
        average  prints a sum over all ranks
        wait     rank 0 prints once there is the file --go
        held     rank 0 waits for that file, all others in a collective for rank 0
        halved   all halve the parameters, then rank 0 waits
        summed   all make a collective, then rank 0 waits
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--tail", default="print")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--pace", type=float, default=0.05)
parser.add_argument("--go", default="")
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = TensorDataset(torch.randn(64, 8, generator=torch.Generator().manual_seed(5)))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=3))


@job.step
def train(batch):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


def run():
    while True:
        for (batch,) in job.batches(loader):
            loss = train(batch)
            time.sleep(args.pace)
            if job.steps == args.steps:
                return loss


loss = run()
if args.tail == "barrier":
    dist.barrier()
if args.tail in ("average", "summed"):
    dist.all_reduce(loss)
if args.tail == "halved":
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
if args.go and job.rank == 0:
    open(args.go + ".awaited", "w").close()
    while not os.path.exists(args.go):
        time.sleep(0.01)
if args.tail == "held":
    dist.all_reduce(loss)
total = sum(float(p.detach().double().sum()) for p in model.parameters())
print(f"rank {job.rank} ends with {float(loss):.9f} after {job.steps} steps: {total:.9f}")
dist.destroy_process_group()
