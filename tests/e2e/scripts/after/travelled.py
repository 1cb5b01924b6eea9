"""The step lowers its rate behind the update, and the loop adds the rates up: the further the
weights have travelled, the less noise the inputs get.
"""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
job.track(model=model, optimizer=optimizer, scheduler=scheduler)
travelled = 0.0


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    noise = torch.randn_like(x) / (4 + 20 * travelled)
    loss = kit.error(model, x + noise, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    travelled += scheduler.get_last_lr()[0]
    kit.moment(job, args)
kit.say(job, f"travelled {travelled:.12g}")
