"""A module counts its calls in an attribute, and warms up by that."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Warming(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.calls = kit.network(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        found: Tensor = self.net(x) * min(1.0, self.calls / 20)
        return found


model = kit.replicated(job, Warming())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


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
    train_step(x, y)
