"""The first steps are made with one optimizer and all others with another, both tracked."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
sgd = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.track(model=model, adam=adam, sgd=sgd)
optimizer: torch.optim.Optimizer = adam


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.steps == 4:
        optimizer = sgd
