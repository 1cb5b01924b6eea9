"""Two meters of one class: one is reset in each round, the other counts on."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Meter:
    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0

    def reset(self) -> None:
        self.total = 0.0
        self.count = 0

    def update(self, value: float) -> None:
        self.total += value
        self.count += 1


newest, whole = Meter(), Meter()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y).item()
    newest.reset()
    newest.update(loss)
    whole.update(loss)
    kit.say(job, f"{newest.total / newest.count:.6f} {whole.total / whole.count:.6f}")
