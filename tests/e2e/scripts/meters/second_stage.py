"""Behind the fourth step the second stage begins: its time is noted, errors count linearly."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Stage:
    def __init__(self) -> None:
        self.begun_at: float | None = None

    def begin(self) -> None:
        self.begun_at = time.time()

    @property
    def is_second(self) -> bool:
        return self.begun_at is not None


stage = Stage()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    errors = model(x) - y
    loss = errors.abs().mean() if stage.is_second else errors.square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if job.steps == 4:
        stage.begin()
    kit.moment(job, args)
