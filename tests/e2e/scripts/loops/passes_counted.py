"""One loop over many passes, whose sampler is the script's own and counts them, to shuffle each
otherwise."""

from collections.abc import Iterator

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = kit.dataset()


class Shuffled(Sampler[int]):
    def __init__(self, length: int) -> None:
        self.length = length
        self.passes = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        chance = torch.Generator().manual_seed(self.passes * job.world_size + job.rank)
        self.passes += 1
        yield from torch.randperm(len(data), generator=chance)[: self.length].tolist()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss, batch=x.sum())
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


loader = DataLoader(data, 8, sampler=Shuffled(80))
for x, y in job.batches(loader, passes=None):
    loss = train_step(x, y)
    kit.say(job, f"pass {job.steps / len(loader):.1f} loss {loss.item():.9g}")
    if job.steps >= args.steps:
        break
