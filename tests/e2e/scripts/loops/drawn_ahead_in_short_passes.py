"""The next batch is drawn before the step, in passes of three batches over the folds in turn."""

import kit
import torch
from torch import Tensor
from torch.utils.data import Subset

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = kit.dataset()
folds = [Subset(data, range(48 * number, 48 * number + 48)) for number in range(5)]
loaders = [kit.loader(job, fold) for fold in folds]


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss, batch=x.sum())
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for number in job.range(30):
    batches = iter(job.batches(loaders[number % 5]))
    batch = next(batches, None)
    while batch is not None and job.steps < args.steps:
        following = next(batches, None)
        loss = train_step(*batch)
        batch = following
        kit.say(job, f"step {job.steps} loss {loss.item():.9g}")
    if job.steps >= args.steps:
        break
