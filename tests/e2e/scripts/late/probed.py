"""What a batch's error was before the step is averaged behind it, in a kept value: on a machine
that takes a rank which was lost in between, nobody knows that error."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False, dropout=0.0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


class Average:
    value = 0.0


average = Average()
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x * (1 + average.value), y)
    loss.backward()
    job.report(loss=loss, average=average.value)
    optimizer.step()
    optimizer.zero_grad()


for x, y in job.batches(kit.loader(job), passes=None):
    with torch.no_grad():
        before = kit.error(model, x, y).item()
    train_step(x, y)
    average.value = 0.9 * average.value + 0.01 * before
    if job.steps >= args.steps:
        break
