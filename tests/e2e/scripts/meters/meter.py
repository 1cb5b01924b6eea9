"""An average of the losses of a pass, in a meter, is printed at the pass's end."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Meter:
    total, count = 0.0, 0

    def add(self, value: float) -> None:
        self.total, self.count = self.total + value, self.count + 1


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for number in range(3):
    meter = Meter()
    for x, y in kit.until(job, args, job.batches(kit.loader(job))):
        meter.add(train_step(x, y).item())
    kit.say(job, f"pass {number} loss {meter.total / meter.count:.9g}")
