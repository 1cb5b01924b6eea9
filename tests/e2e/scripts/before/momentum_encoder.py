"""MoCo, BYOL, a mean teacher: the forward pass first moves the teacher towards the student."""

import copy

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.student = kit.network(norm=False)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            for slow, fast in zip(
                self.teacher.parameters(), self.student.parameters(), strict=True
            ):
                slow.mul_(0.9).add_(fast, alpha=0.1)
        return self.student(x), self.teacher(x)


model = kit.replicated(job, Pair())
optimizer = torch.optim.SGD(model.module.student.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    found, taught = model(x)
    loss = (found - y).square().mean() + 0.3 * (found - taught).square().mean()
    optimizer.zero_grad()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
