"""A list of averaged weights, kept by torch._foreach_lerp_, says how far the model may go."""

from collections.abc import Iterable

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Average:
    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.shadow = [one.detach().clone() for one in parameters]

    def update(self, parameters: Iterable[Tensor]) -> None:
        torch._foreach_lerp_(self.shadow, [one.detach() for one in parameters], 0.1)

    def distance(self, parameters: Iterable[Tensor]) -> Tensor:
        pairs = zip(parameters, self.shadow, strict=True)
        return torch.stack([(one - slow).square().sum() for one, slow in pairs]).sum()


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
average = Average(model.parameters())
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) + average.distance(model.parameters())
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    average.update(model.parameters())
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
