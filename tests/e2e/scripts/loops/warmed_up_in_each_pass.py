"""A pass draws its first batch, sets the optimizer up for the pass, and draws the others in a
`while` loop that lowers the learning rate."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss, batch=x.sum(), rate=optimizer.param_groups[0]["lr"])
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for _ in job.range(10):
    batches = iter(job.batches(kit.loader(job)))
    batch = next(batches, None)
    for group in optimizer.param_groups:
        group["lr"] = 0.05
    while batch is not None and job.steps < args.steps:
        loss = train_step(*batch)
        for group in optimizer.param_groups:
            group["lr"] *= 0.8
        kit.say(job, f"step {job.steps} loss {loss.item():.9g}")
        batch = next(batches, None)
    if job.steps >= args.steps:
        break
