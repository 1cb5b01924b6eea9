"""Local SGD: each rank trains for itself, and every fourth step averages the weights, after its
update."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.network(norm=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    last = job.steps % 4 == 3
    loss = kit.error(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    if last:
        for parameter in model.parameters():
            kit.mean(parameter.data)
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
