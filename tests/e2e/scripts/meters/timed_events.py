"""A history has losses and when they were, as small objects; their mean scales the loss."""

import statistics
import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Event:
    def __init__(self, loss: float, at: float) -> None:
        self.loss, self.at = loss, at


class History:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, loss: float) -> None:
        self.events.append(Event(loss, time.time()))
        del self.events[:-8]

    def level(self) -> float:
        return statistics.fmean(one.loss for one in self.events) if self.events else 1.0


history = History()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) / (0.5 + history.level())
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    history.note(loss.item())
    kit.moment(job, args)
kit.say(job, f"level {history.level():.9g}")
