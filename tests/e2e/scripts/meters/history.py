"""A history of dicts with loss and seconds, whose last ten losses set the learning rate."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor, rate: float) -> Tensor:
    kit.pace(job, args)
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


history: list[dict[str, float]] = []
begun = time.time()
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    recent = [one["loss"] for one in history[-10:]]
    loss = train_step(x, y, min(1e-2, sum(recent) / 100) if recent else 1e-2)
    history.append({"loss": loss.item(), "seconds": time.time() - begun})
kit.say(job, f"mean {sum(one['loss'] for one in history) / len(history):.9g}")
