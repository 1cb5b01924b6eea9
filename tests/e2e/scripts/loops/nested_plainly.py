"""An evaluation as steps after each data pass, whose function divides by its number of batches;
data passes are counted by a range of the script's own."""

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


@job.step
def evaluate(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    model.eval()
    with torch.no_grad():
        error = kit.mean(kit.error(model.module, x, y))
    model.train()
    return error


def train() -> None:
    for x, y in kit.until(job, args, job.batches(kit.loader(job, kit.dataset(128)))):
        loss = train_step(x, y)
    assert loss.isfinite()


def validate() -> float:
    for x, y in job.batches(kit.loader(job, kit.dataset(48, seed=8))):
        error = evaluate(x, y).item()
    return error


for number in range(4):
    train()
    kit.say(job, f"pass {number} held out {validate():.9g}")
