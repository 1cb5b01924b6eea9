"""One list of betas for both groups, changed in place through one of them."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
parameters = list(model.parameters())
groups = [{"params": parameters[:2]}, {"params": parameters[2:]}]
optimizer = torch.optim.Adam(groups, lr=0.02)
betas = [0.9, 0.99]
for group in optimizer.param_groups:
    group["betas"] = betas
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    optimizer.param_groups[0]["betas"][0] *= 0.98
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    kit.say(job, f"step {job.steps} loss {loss.item():.9g}")
