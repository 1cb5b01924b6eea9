"""A hook of each parameter clips its gradient by a running mean that the hook keeps."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Clip:
    def __init__(self) -> None:
        self.mean = 0.0

    def __call__(self, gradient: Tensor) -> Tensor:
        norm = gradient.norm().item()
        self.mean = 0.9 * self.mean + 0.1 * norm
        return gradient * min(1.0, self.mean / norm) if norm else gradient


for parameter in model.parameters():
    parameter.register_hook(Clip())


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
