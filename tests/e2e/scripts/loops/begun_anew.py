"""Two loaders in turn: the iterator over the shorter one is begun anew when it is at its end."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
loaders = [kit.loader(job, kit.dataset(64, 5)), kit.loader(job)]


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()


drawn = [iter(job.batches(loader)) for loader in loaders]
while job.steps < args.steps:
    task = job.steps % 2
    try:
        x, y = next(drawn[task])
    except StopIteration:
        drawn[task] = iter(job.batches(loaders[task]))
        x, y = next(drawn[task])
    train_step(x, y)
