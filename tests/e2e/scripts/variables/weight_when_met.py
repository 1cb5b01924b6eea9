"""A group gets its weight when it is first met, by how well the model does then; it keeps it."""

import functools

import kit
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs, targets = kit.dataset().tensors
data = TensorDataset(inputs, targets, torch.arange(len(inputs)) % 60)


class Progress:
    def __init__(self) -> None:
        self.smooth = 1.0

    def note(self, loss: float) -> None:
        self.smooth = 0.8 * self.smooth + 0.2 * loss

    def factor(self) -> float:
        return 1.0 / (0.2 + self.smooth)


progress = Progress()
job.track(model=model, optimizer=optimizer)


@functools.cache
def weight_of(group: int) -> float:
    return (1.0 + group % 3) * progress.factor()


@job.step
def train_step(x: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    kit.pace(job, args)
    weights = torch.tensor([[weight_of(group)] for group in groups.tolist()])
    loss = (weights * (model(x) - y).square()).mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y, groups in kit.until(job, args, job.batches(kit.loader(job, data), passes=None)):
    loss = train_step(x, y, groups)
    progress.note(loss.item())
    kit.moment(job, args)
kit.say(job, f"weight of group 7: {weight_of(7):.9g}")
