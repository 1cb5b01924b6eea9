"""A model in bfloat16, whose weights in float32 nobody has but the optimizer."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
network = kit.network(norm=False).to(torch.bfloat16)
model = kit.replicated(job, network)
copies = [one.detach().float().clone().requires_grad_() for one in network.parameters()]
optimizer = torch.optim.AdamW(copies, lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x.bfloat16(), y).float()
    loss.backward()
    job.report(loss=loss)
    masters = optimizer.param_groups[0]["params"]
    for master, one in zip(masters, network.parameters(), strict=True):
        master.grad = one.grad.float()
    optimizer.step()
    with torch.no_grad():
        for master, one in zip(masters, network.parameters(), strict=True):
            one.copy_(master)
    network.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
