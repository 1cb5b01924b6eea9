"""What is kept behind each step is read in another file only."""

import kit
import torch
from moving.weights import weight_of
from torch import Tensor

job, args = kit.begin()


class Progress:
    def __init__(self) -> None:
        self.best = 1.0


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
progress = Progress()


@job.step
def train_step(x: Tensor, y: Tensor) -> float:
    kit.pace(job, args)
    loss = weight_of(progress) * kit.error(model, x, y)
    loss.backward()
    average = kit.mean(loss.detach().clone()).item()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return average


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    average = train_step(x, y)
    progress.best = average / (1 + average)
