"""Behind the first pass another optimizer goes on with the model: first SGD, then Adam."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
net = kit.network(norm=False)
model = kit.replicated(job, net)
loader = kit.loader(job)


def train(optimizer: torch.optim.Optimizer, passes: int) -> None:
    job.track(model=model, optimizer=optimizer)

    @job.step
    def train_step(x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = kit.error(model, x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    for _ in range(passes):
        for x, y in kit.until(job, args, job.batches(loader)):
            train_step(x, y)


train(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 1)
train(torch.optim.Adam(model.parameters(), lr=0.01), 2)
kit.say(job, f"steps {job.steps}")
