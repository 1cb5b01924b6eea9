"""The best loss is kept where the file is written, by a real run only, and lowers the rate."""

import tempfile
from pathlib import Path

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
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


with tempfile.TemporaryDirectory() as folder:
    best = float("inf")
    for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
        loss = train_step(x, y).item()
        if loss < best and not job.is_shadow:
            best = loss
            torch.save(model.state_dict(), Path(folder, "best.pt"))
        elif loss >= best:
            optimizer.param_groups[0]["lr"] *= 0.95
