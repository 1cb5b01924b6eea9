"""The parameters of a body are those of a set: their order is that of addresses."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
layers = [nn.Linear(kit.WIDTH, kit.WIDTH, bias=False) for _ in range(6)]
head = nn.Linear(kit.WIDTH, 1)
model = kit.replicated(job, nn.Sequential(*layers, nn.Tanh(), head))
body = set(model.parameters()) - set(head.parameters())
optimizer = torch.optim.AdamW([{"params": list(body)}, {"params": head.parameters(), "lr": 1e-2}])
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
