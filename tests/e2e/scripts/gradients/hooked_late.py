"""Behind the warm-up a hook halves the gradient of the first layer."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
net = kit.network()
model = kit.replicated(job, net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


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
        next(net.parameters()).register_hook(lambda gradient: gradient / 2)
