"""Gradients of more than 4 MB are gathered over two calls."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
net = nn.Sequential(
    nn.Linear(kit.WIDTH, 1100), nn.Tanh(), nn.Linear(1100, 1100), nn.Linear(1100, 1)
)
model = kit.replicated(job, net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    last = job.steps % 2 == 1
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    if last:
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
