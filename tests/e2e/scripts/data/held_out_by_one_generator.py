"""Training and held-out loader have the same seeded generator; every four steps held-out data
is gone over.
"""

import logging

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

log = logging.getLogger("train")
job, args = kit.begin()
net = kit.network(norm=False)
model = kit.replicated(job, net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
chance = torch.Generator().manual_seed(11 + job.rank)
part = Subset(kit.dataset(), range(job.rank, 240, job.world_size))
loader = DataLoader(part, 8, shuffle=True, drop_last=True, generator=chance)
held_out = DataLoader(kit.dataset(64, 9), 16, generator=chance)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def evaluate() -> float:
    net.eval()
    with torch.no_grad():
        errors = [kit.error(net, x, y) for x, y in held_out]
    net.train()
    return torch.stack(errors).mean().item()


for x, y in kit.until(job, args, job.batches(loader, passes=None)):
    train_step(x, y)
    if job.steps % 4 == 0:
        log.info("held-out error %.4f", evaluate())
    kit.moment(job, args)
kit.say(job, f"held-out error {evaluate():.9g}")
