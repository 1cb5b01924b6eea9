"""DINO's centre: a buffer that follows the averaged outputs, in the step, before the update."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Centred(nn.Module):
    centre: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = kit.network(norm=False)
        self.register_buffer("centre", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.net(x)
        with torch.no_grad():
            self.centre.lerp_(kit.mean(found.mean(0)), 0.1)
        return found - self.centre


model = kit.replicated(job, Centred(), broadcast_buffers=False)
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
