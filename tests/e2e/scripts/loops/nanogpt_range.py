"""The same with the batch drawn where it is used, and the loop counted by job.range."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = kit.dataset(400).tensors


@job.step
def train_step() -> Tensor:
    kit.pace(job, args)
    chosen = torch.randint(400, (8,))
    x, y = (part[chosen] for part in data)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for number in job.range(args.steps):
    optimizer.param_groups[0]["lr"] = 1e-2 * min(1.0, (number + 1) / 20)
    kit.say(job, f"iter {number} loss {train_step().item():.9g}")
