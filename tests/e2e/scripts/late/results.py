"""A step gives several numbers; a running mean of one, each rank's own, makes the next loss."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


class Running:
    mean = 0.0


running = Running()
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> dict[str, float]:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * (1.0 + 0.1 * running.mean)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return {"loss": loss.item(), "size": len(x)}


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    given = train_step(x, y)
    running.mean = 0.9 * running.mean + 0.1 * given["loss"]
