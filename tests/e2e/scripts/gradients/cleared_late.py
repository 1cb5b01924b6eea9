"""Gradients are cleared at the start of the next step, in place; a norm of them is printed between
the two."""

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
    optimizer.zero_grad(set_to_none=False)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    kit.say(job, f"step {job.steps} norm {norm.item():.9g}")
