"""A handler keeps the last record of the log; the mean in it weighs the next loss."""

import logging

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Last(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.record: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.record = record

    def mean(self) -> float:
        return self.record.args[1] if self.record is not None else 1.0


log, last = logging.getLogger("train"), Last()
log.setLevel(logging.INFO)
log.propagate = False
log.addHandler(last)
log.info("step %d mean %.6f", 0, 1.0)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) / (0.5 + last.mean())
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    log.info("step %d mean %.6f", job.steps, 0.8 * last.mean() + 0.2 * loss.item())
    kit.moment(job, args)
