"""LBFGS: passes, with their collectives, inside optimizer.step()."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False, dropout=0.0))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=3, history_size=3)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = kit.error(model, x, y)
        loss.backward()
        return kit.mean(loss.detach())

    loss: Tensor = optimizer.step(closure)
    return loss


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
