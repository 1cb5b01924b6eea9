"""The body thaws after ten steps: a group is added, with another rate."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
body, head = nn.Linear(kit.WIDTH, 8), nn.Linear(8, 1)
body.requires_grad_(False)
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
job.track(body=body, head=head, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    if job.steps >= 10 and len(optimizer.param_groups) == 1:
        body.requires_grad_(True)
        optimizer.add_param_group({"params": body.parameters(), "lr": 1e-3})
    loss = (head(body(x)) - y).square().mean()
    loss.backward()
    job.report(loss=loss)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            kit.mean(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
