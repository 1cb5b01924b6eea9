"""Experts: each batch goes to the one for its mean; three batches make an update."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(kit.WIDTH, 16), nn.ReLU())
        self.experts = nn.ModuleList([nn.Linear(16, 1) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        which = int((x.mean() * 40).floor()) % len(self.experts)
        found: Tensor = self.experts[which](self.body(x))
        return found


model = kit.replicated(job, Experts(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    last = job.steps % 3 == 2
    model.require_backward_grad_sync = last
    loss = kit.error(model, x, y)
    (loss / 3).backward()
    job.report(loss=loss)
    if last:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
kit.say(job, f"sum {sum(p.double().sum().item() for p in model.parameters())!r}")
