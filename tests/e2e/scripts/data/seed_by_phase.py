"""With each phase of the training, behind steps 4 and 20, the sampler gets a seed of its own
for the passes to come.
"""

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

PHASES = (4, 20)
job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = kit.dataset()
sampler = DistributedSampler(data, job.world_size, job.rank, drop_last=True)
loader = DataLoader(data, 8, sampler=sampler, drop_last=True)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(loader, passes=None)):
    train_step(x, y)
    if job.steps in PHASES:
        sampler.set_epoch(100 * job.steps)
    kit.moment(job, args)
kit.say(job, f"weights {sum(p.double().sum() for p in model.parameters()).item():.12g}")
