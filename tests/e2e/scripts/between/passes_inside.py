"""Passes are counted by job.range; between two of them a scheduler goes on, and weights decay."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
net = kit.network(norm=False)
model = kit.replicated(job, net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
job.track(model=model, optimizer=optimizer, scheduler=scheduler)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


data = kit.loader(job, kit.dataset(208))
for _ in job.range(4):
    for x, y in job.batches(data):
        train_step(x, y)
    kit.moment(job, args)
    scheduler.step()
    with torch.no_grad():
        net[0].weight.mul_(0.97)
kit.say(job, f"lr {optimizer.param_groups[0]['lr']}")
