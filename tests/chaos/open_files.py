"""A script that keeps files open, and opens one more in each step: open_files.py FILES HURRY.

It trains until HURRY exists.
"""

import os
import sys
import time

import torch
from torch import nn

import trainmover

torch.set_num_threads(1)
job = trainmover.attach()
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job.track(model=model, optimizer=optimizer)
held = [open(os.devnull) for _ in range(int(sys.argv[1]))]  # noqa: SIM115


@job.step
def step(i: int) -> float:
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8) * float(i % 7)).pow(2).mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


for i in job.range(100_000):
    step(i)
    open(os.devnull).close()
    time.sleep(0.01)
    if i % 10 == 0 and os.path.exists(sys.argv[2]):
        break
