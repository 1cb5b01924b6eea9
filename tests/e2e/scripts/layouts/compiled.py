"""A compiled model in DDP."""

import os

os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")  # Trying it out takes longer than the rest.

import kit
import torch
from torch import Tensor

torch._inductor.config.compile_threads = 1  # Here, not in a process that is started for it.
job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
compiled = torch.compile(model)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = (compiled(x) - y).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
