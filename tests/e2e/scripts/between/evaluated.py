"""A validation with an all_reduce between steps; the rate follows from it."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
held_x, held_y = kit.dataset(64, seed=8 + job.rank).tensors


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def validate() -> float:
    model.eval()
    with torch.no_grad():
        error = kit.mean(kit.error(model.module, held_x, held_y))
    model.train()
    return error.item()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.steps % 2 == 0:
        kit.moment(job, args)
        error = validate()
        optimizer.param_groups[0]["lr"] = 1e-2 / (1 + error)
        kit.say(job, f"step {job.steps} held out {error:.9g}")
