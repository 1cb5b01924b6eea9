"""try and finally around the loop, and batches that are left out."""

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
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


try:
    for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
        if x.shape[0] < 8:
            continue
        train_step(x, y)
finally:
    kit.say(job, f"over after {job.steps} steps")
    torch.distributed.destroy_process_group()
