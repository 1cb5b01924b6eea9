"""Behind the fourth step a snapshot of the weights is written; from then on the weights are held
near zero by a penalty.
"""

import tempfile
from pathlib import Path

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
folder = Path(args.orders or tempfile.gettempdir())
saved = False


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    if saved:
        loss = loss + 0.05 * sum(p.square().sum() for p in model.parameters())
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.steps == 4 and not job.is_shadow:
        torch.save(model.state_dict(), folder / f"warm-{job.rank}.pt")
        saved = True
    kit.moment(job, args)
kit.say(job, f"weights {sum(p.double().sum() for p in model.parameters()).item():.12g}")
