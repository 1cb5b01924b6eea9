"""A memory of the last batches' means is kept, and given to each step, which drops the oldest."""

import kit
import torch
from torch import Tensor

SLOTS = 5


class Memory:
    def __init__(self) -> None:
        self.rows: list[Tensor] = []


def main() -> None:
    job, args = kit.begin()
    model = kit.replicated(job, kit.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    memory = Memory()
    job.track(model=model, optimizer=optimizer)

    @job.step
    def train_step(x: Tensor, y: Tensor, rows: list[Tensor]) -> Tensor:
        kit.pace(job, args)
        centre = torch.stack(rows).mean(0) if rows else torch.zeros(kit.WIDTH)
        loss = kit.error(model, x - centre, y)
        loss.backward()
        job.report(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        rows.append(x.mean(0))
        if len(rows) > SLOTS:
            rows.pop(0)
        return loss.detach()

    for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
        train_step(x, y, memory.rows)
    kit.say(job, f"{len(memory.rows)} rows, sum {torch.stack(memory.rows).sum().item():.9g}")


main()
