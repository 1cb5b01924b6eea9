"""Activations are computed again in the backward pass, with the same dropout."""

import kit
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

job, args = kit.begin()


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(kit.network() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = x + checkpoint(part, x, use_reentrant=False)
        return x.mean(1, keepdim=True)


model = kit.replicated(job, Deep())
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
