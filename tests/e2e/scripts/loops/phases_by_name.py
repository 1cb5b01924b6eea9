"""A head is trained first, then all: each phase has an optimizer of its own, under its own name."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
net = kit.network(norm=False)
model = kit.replicated(job, net)
loader = kit.loader(job)


def train(name: str, optimizer: torch.optim.Optimizer, passes: int) -> None:
    job.track(model=model, **{name: optimizer})

    @job.step
    def train_step(x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = kit.error(model, x, y)
        loss.backward()
        optimizer.step()
        model.zero_grad()
        return loss.detach()

    for _ in range(passes):
        for x, y in kit.until(job, args, job.batches(loader)):
            train_step(x, y)


train("head", torch.optim.SGD(net[3].parameters(), lr=0.1, momentum=0.9), 1)
train("all", torch.optim.Adam(model.parameters(), lr=0.01), 2)
kit.say(job, f"steps {job.steps}")
