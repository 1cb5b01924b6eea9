"""No DDP: the script averages the gradients itself, in one flat tensor."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.network()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    optimizer.zero_grad()
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = kit.mean(torch.cat([gradient.flatten() for gradient in gradients]))
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
    optimizer.step()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
