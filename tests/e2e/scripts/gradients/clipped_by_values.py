"""The same, and job.values keeps the norms."""

import statistics

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class History:
    def __init__(self) -> None:
        self.norms: list[float] = []


history = History()
job.values(history, "norms")


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    limit = statistics.median(history.norms) if history.norms else 1.0
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item()
    history.norms = [*history.norms[-9:], norm]
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"norms {history.norms}")
