"""A job whose parameters are worth not initialising: numbers drawn after them go into its data."""

import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn

import trainmover as tm

torch.set_num_threads(1)
width, steps, pace = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
begun = time.perf_counter()
net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
built_s = time.perf_counter() - begun
data = torch.randn(64, 4, width)
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.track(model=model, optimizer=optimizer)
if job.is_shadow:
    print(f"built in {built_s:.3f} s, drew {data[0, 0, 0].item()}", file=sys.stderr)


@job.step
def train_step(number: int) -> Tensor:
    time.sleep(pace)
    loss = (model(data[number % 64]) - 1).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for number in job.batches(range(steps)):
    train_step(number)
