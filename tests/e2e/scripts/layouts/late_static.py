"""A second model, of a static graph, begins to train after ten steps."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
first = nn.parallel.DistributedDataParallel(kit.network())
wide = nn.Sequential(nn.Linear(kit.WIDTH, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 1))
second = kit.replicated(job, wide, bucket_cap_mb=0.002, static_graph=True)
parameters = [*first.parameters(), *second.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-2)
job.track(first=first, second=second, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(first, x, y)
    if job.steps >= 10:
        loss = loss + kit.error(second, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
