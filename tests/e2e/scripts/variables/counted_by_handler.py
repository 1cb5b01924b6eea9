"""A handler of the log counts how often there was a warning; with each one the loss weighs less."""

import logging

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Counting(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def set_up_logging() -> None:
    logging.getLogger("train").propagate = False
    logging.getLogger("train").addHandler(Counting())


def warnings_so_far() -> int:
    handlers = logging.getLogger("train").handlers
    return sum(one.count for one in handlers if isinstance(one, Counting))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    if loss.item() > 2.0:
        logging.getLogger("train").warning("step %d: the loss is %.3f", job.steps, loss.item())
    loss = loss / (1 + 0.2 * warnings_so_far())
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


set_up_logging()
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"{warnings_so_far()} warnings")
