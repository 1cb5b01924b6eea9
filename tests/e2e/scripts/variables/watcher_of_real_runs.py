"""Real runs have a watcher; it lowers what a loss counts while losses are high."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Level:
    def __init__(self) -> None:
        self.scale = 1.0


class Watcher:
    def __init__(self, level: Level) -> None:
        self.level = level

    def note(self, loss: float) -> None:
        self.level.scale = 0.8 * self.level.scale + 0.2 / (0.5 + loss)


level = Level()
watcher = None
if not job.is_shadow:
    watcher = Watcher(level)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * level.scale
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if watcher is not None:
        watcher.note(loss.item())
    kit.moment(job, args)
