"""torch's AveragedModel with buffers, in the step, from the sixth step on."""

import kit
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
average = AveragedModel(model, use_buffers=True)
job.track(average=average)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    begins = job.steps >= 5
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    if begins:
        average.update_parameters(model)
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
