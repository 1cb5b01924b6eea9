"""Each batch is mixed with one of a second walk over the same loader, whose sampler has
another order each time that it is gone over.
"""

from collections.abc import Iterator

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

job, args = kit.begin()


class Reshuffled(Sampler[int]):
    def __init__(self, size: int) -> None:
        self.size, self.walks = size, 0

    def __iter__(self) -> Iterator[int]:
        seeded = torch.Generator().manual_seed(100 + self.walks)
        self.walks += 1
        order = torch.randperm(self.size, generator=seeded).tolist()
        return iter(order[job.rank :: job.world_size])

    def __len__(self) -> int:
        return self.size // job.world_size


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
loader = DataLoader(kit.dataset(96), 8, sampler=Reshuffled(96))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


own, others = job.batches(loader, passes=None), job.batches(loader, passes=None)
for (x, y), (other_x, other_y) in kit.until(job, args, zip(own, others, strict=True)):
    train_step(0.7 * x + 0.3 * other_x, 0.7 * y + 0.3 * other_y)
    kit.moment(job, args)
kit.say(job, f"weights {sum(p.double().sum() for p in model.parameters()).item():.12g}")
