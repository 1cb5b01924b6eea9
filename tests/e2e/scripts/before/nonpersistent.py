"""A buffer that no state_dict has, changed in every forward pass, on each rank for itself."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Scaled(nn.Module):
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = kit.network()
        self.register_buffer("scale", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale.lerp_(x.abs().mean(), 0.1)
        found: Tensor = self.net(x / self.scale)
        return found


model = kit.replicated(job, Scaled(), broadcast_buffers=False)
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
