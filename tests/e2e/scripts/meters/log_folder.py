"""A log writes to a folder that is named by the time, and keeps nothing else; a table is by id."""

import time

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Log:
    def __init__(self, folder: str, every: int) -> None:
        self.folder, self.every = folder, every

    def add(self, step: int, text: str) -> None:
        if step % self.every == 0:
            kit.say(job, f"{step} {text}")


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def main() -> None:
    log = Log(f"runs/{time.time()}", every=3)
    names = {id(one): name for name, one in model.named_parameters()}
    for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
        loss = train_step(x, y)
        log.add(job.steps, f"{loss.item():.9g} {names[id(next(model.parameters()))]}")


main()
