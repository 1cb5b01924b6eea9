"""One optimizer for the body, one for the head, another rate each, one schedule."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
body = torch.optim.SGD(model.module[0].parameters(), lr=0.05, momentum=0.9)
head = torch.optim.AdamW(model.module[1:].parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(body, 50)
job.track(model=model, body=body, head=head, scheduler=scheduler)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    for optimizer in (body, head):
        optimizer.step()
        optimizer.zero_grad()
    scheduler.step()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
