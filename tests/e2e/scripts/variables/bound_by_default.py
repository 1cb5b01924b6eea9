"""A penalty on large outputs, whose rate the loop sets after every third step."""

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

    def penalty(out: Tensor, rate: float = rate) -> Tensor:
        return rate * out.square().mean()

    out = model(x)
    loss = (out - y).square().mean() + penalty(out)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


rate = 0.5
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if job.steps % 3 == 0:
        rate = 0.5 / (1.0 + loss.item())
    kit.moment(job, args)
