"""The losses of a pass are summed by `sum` and `map`, which hold what they have so far."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(batch: tuple[Tensor, Tensor]) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, *batch)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


while job.steps < args.steps:
    total = sum(map(train_step, job.batches(kit.loader(job))))
    kit.say(job, f"sum of losses {float(total):.9g}")
