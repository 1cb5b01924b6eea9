"""The script goes on from its own checkpoint, if it finds one, and writes one now and then."""

from pathlib import Path

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
checkpoint = Path(args.orders, "checkpoint.pt")
if args.orders and checkpoint.exists():
    kept = torch.load(checkpoint)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if args.orders and job.rank == 0 and job.steps % 4 == 0 and not job.is_shadow:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
