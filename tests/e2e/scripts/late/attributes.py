"""An attribute of the script's own object that the step counts up, from the tenth on."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

job.track(model=model, optimizer=optimizer)


class Warm:
    """How far it has come."""

    seen = 0


warm = Warm()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    begins = job.steps >= 9
    loss = kit.error(model, x, y) / (1 + warm.seen)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    if begins:
        warm.seen += 1
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
