"""Evaluation as steps of their own; the training step clears its gradients at its start."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
held_x, held_y = kit.dataset(16, seed=8).tensors


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    model.train()
    optimizer.zero_grad()
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


@job.step
def evaluate() -> Tensor:
    kit.pace(job, args)
    model.eval()
    with torch.no_grad():
        return kit.mean(kit.error(model.module, held_x, held_y))


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.steps % 5 == 4:
        kit.say(job, f"step {job.steps} held out {evaluate().item():.9g}")
