"""A plateau scheduler is told the average of the loss at the end of the step."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.7, patience=1)
job.track(model=model, optimizer=optimizer, scheduler=scheduler)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average = kit.mean(loss.detach())
    scheduler.step(average.item())
    return average


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"lr {optimizer.param_groups[0]['lr']}")
