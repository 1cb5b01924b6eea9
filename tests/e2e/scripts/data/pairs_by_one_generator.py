"""Labelled and unlabelled data are shuffled by two loaders with the same seeded generator, and
are drawn side by side.
"""

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
chance = torch.Generator().manual_seed(11 + job.rank)


def own_part(size: int, seed: int) -> "DataLoader[tuple[Tensor, Tensor]]":
    part = Subset(kit.dataset(size, seed), range(job.rank, size, job.world_size))
    return DataLoader(part, 8, shuffle=True, drop_last=True, generator=chance)


labelled = job.batches(own_part(240, 3), passes=None)
unlabelled = job.batches(own_part(96, 5), passes=None)


@job.step
def train_step(x: Tensor, y: Tensor, u: Tensor) -> Tensor:
    kit.pace(job, args)
    out = model(torch.cat([x, u, u + 0.1 * torch.randn_like(u)]))
    known, one, other = out.split([len(x), len(u), len(u)])
    loss = (known - y).square().mean() + 0.3 * (one.detach() - other).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for (x, y), (u, _) in kit.until(job, args, zip(labelled, unlabelled, strict=True)):
    train_step(x, y, u)
    kit.moment(job, args)
kit.say(job, f"weights {sum(p.double().sum() for p in model.parameters()).item():.12g}")
