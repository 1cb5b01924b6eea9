"""An attribute of the model that the loop makes of each rank's own loss, from the tenth step on."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
network = kit.network()
network.penalty = 0.0
model = kit.replicated(job, network)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> float:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * (1 + network.penalty)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if job.steps >= 10:
        network.penalty = 0.1 * loss
