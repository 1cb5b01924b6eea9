"""The same, kept by job.values."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
held_x, held_y = kit.dataset(64, seed=8).tensors


class Progress:
    best, worse = float("inf"), 0


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def held_out() -> float:
    model.eval()
    with torch.no_grad():
        error = kit.error(model.module, held_x, held_y).item()
    model.train()
    return error


def main() -> None:
    progress = Progress()
    job.values(progress, "best", "worse")
    for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
        train_step(x, y)
        if job.steps % 4 == 0:
            error = held_out()
            if error >= progress.best:
                progress.worse += 1
                optimizer.param_groups[0]["lr"] *= 0.7
            progress.best = min(progress.best, error)
            kit.say(job, f"step {job.steps} best {progress.best:.9g} worse {progress.worse}")


main()
