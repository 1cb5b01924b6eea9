"""A mean of gradient norms, which a loop reads behind each step and scales its batches by."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


norm = 0.0
first = next(model.parameters())
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x * (1 + norm / 100), y)
    assert first.grad is not None
    norm = 0.9 * norm + first.grad.norm().item()
