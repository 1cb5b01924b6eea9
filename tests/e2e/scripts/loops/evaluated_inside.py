"""An evaluation between steps goes through a loader of its own, without job.batches, no step."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
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


def evaluate() -> float:
    model.eval()
    errors = []
    with torch.no_grad():
        for x, y in kit.loader(job, kit.dataset(48, seed=8)):
            errors.append(kit.error(model.module, x, y))
    model.train()
    return kit.mean(torch.stack(errors).mean()).item()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.steps % 7 == 0:
        kit.moment(job, args)
        kit.say(job, f"step {job.steps} held out {evaluate():.9g}")
