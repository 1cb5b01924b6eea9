"""Events of steps and of the loop lie in one log; the norms in it say how much a loss counts."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

Row = tuple[str, float]
events: list[Row] = []


def note(table: list[Row], what: str, value: float) -> None:
    table.append((what, value))
    del table[:-12]


def average(table: list[Row], what: str) -> float:
    found = [value for name, value in table if name == what]
    return sum(found) / len(found) if found else 1.0


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) / (0.5 + average(events, "norm"))
    loss.backward()
    job.report(loss=loss)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    note(events, "norm", norm.item())
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    note(events, "loss", loss.item())
    kit.moment(job, args)
