"""A log is made by a function, for a folder that is named by the time; it keeps a mean."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Log:
    def __init__(self, folder: str) -> None:
        self.folder, self.mean = folder, 1.0

    def add(self, value: float) -> None:
        self.mean = 0.9 * self.mean + 0.1 * value


def log_in(folder: str) -> Log:
    return Log(folder)


@job.step
def train_step(x: Tensor, y: Tensor, scale: float) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * scale
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


log = log_in(f"runs/{time.time():.0f}")
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    log.add(train_step(x, y, log.mean).item())
