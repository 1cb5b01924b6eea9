"""The script tells its sampler the number of each pass, and begins a loop for each."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
loader = kit.loader(job, kit.dataset(128))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for number in job.range(100):
    loader.sampler.set_epoch(number)
    for x, y in kit.until(job, args, job.batches(loader)):
        train_step(x, y)
    if job.steps >= args.steps:
        break
