"""Two tasks in turn, a batch of each to an update: DDP reduces with the second one's."""

from contextlib import nullcontext

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class TwoTasks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = kit.network()[:-1]
        self.heads = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])

    def forward(self, x: Tensor, task: int) -> Tensor:
        found: Tensor = self.heads[task](self.body(x))
        return found


model = kit.replicated(job, TwoTasks(), find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    task = job.steps % 2
    with nullcontext() if task else model.no_sync():
        loss = (model(x, task) - (y.abs() if task else y)).square().mean()
        (loss / 2).backward()
    job.report(loss=loss)
    if task:
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
kit.say(job, f"sum {sum(p.double().sum().item() for p in model.parameters())!r}")
