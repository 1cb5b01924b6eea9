"""A second loader with the same generator is drawn from late, and noise is drawn from that
generator all the time.
"""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
chance = torch.Generator().manual_seed(11 + job.rank)
second = iter(job.batches(kit.loader(job, generator=chance), passes=None))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    x = x + 0.1 * torch.randn(x.shape, generator=chance)
    if job.steps > 20:
        x = 0.5 * x + 0.5 * next(second)[0]
    train_step(x, y)
    kit.moment(job, args)
kit.say(job, f"weights {sum(p.double().sum() for p in model.parameters()).item():.12g}")
