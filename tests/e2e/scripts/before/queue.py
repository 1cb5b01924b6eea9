"""MoCo's queue: a large buffer, and a pointer into it, both changed in the forward pass."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Queued(nn.Module):
    queue: Tensor
    place: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = kit.network(norm=False)
        self.register_buffer("queue", torch.zeros(64, 512))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.net(x)
        self.queue[self.place % 64] = found.detach().mean()
        self.place += 1
        return found + 0.1 * self.queue.sum() / (512 * self.place.clamp(max=64))


model = kit.replicated(job, Queued(), broadcast_buffers=False)
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
