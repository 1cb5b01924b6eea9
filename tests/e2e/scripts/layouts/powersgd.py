"""DDP's PowerSGD hook, which keeps errors and bases from step to step."""

import kit
import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
state = powerSGD_hook.PowerSGDState(
    None, matrix_approximation_rank=1, start_powerSGD_iter=5, min_compression_rate=1
)
model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


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
