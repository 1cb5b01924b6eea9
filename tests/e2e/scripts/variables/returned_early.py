"""A rate follows from the loss now and then: what sets it mostly returns before it does."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Scale:
    value = 1.0

    def update(self, loss: float) -> None:
        if job.steps % 3:
            return
        self.value = 0.5 + 0.1 * loss

    def of(self, loss: float) -> float:
        self.update(loss)
        return self.value


@job.step
def train_step(x: Tensor, y: Tensor, rate: float) -> Tensor:
    kit.pace(job, args)
    optimizer.param_groups[0]["lr"] = rate
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


scale = Scale()
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = kit.error(model.module, x, y).item()
    train_step(x, y, 1e-2 * scale.of(loss))
