"""A curriculum: after each pass the data are cut less short, and the sampler takes more of them."""

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Cut(Dataset):
    def __init__(self) -> None:
        self.whole, self.width = kit.dataset(), 2

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.whole[index]
        return torch.where(torch.arange(kit.WIDTH) < self.width, x, 0.0), y


class Easy(Sampler[int]):
    def __init__(self) -> None:
        self.easiest = [range(0, 64)]

    def __iter__(self):
        for part in self.easiest:
            yield from part[job.rank :: job.world_size]

    def __len__(self) -> int:
        return sum(len(part) // job.world_size for part in self.easiest)


data, sampler = Cut(), Easy()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


while job.steps < args.steps:
    for x, y in kit.until(job, args, job.batches(DataLoader(data, 8, sampler=sampler))):
        train_step(x, y)
    data.width = min(data.width + 2, kit.WIDTH)
    sampler.easiest = [*sampler.easiest, range(64, 96)]
