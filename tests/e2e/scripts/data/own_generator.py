"""A dataset with a generator of its own, for augmentation, in the process that trains."""

import kit
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self) -> None:
        self.data, self.chance = kit.dataset(), np.random.default_rng(7 + job.rank)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.data[index]
        return x + 0.1 * torch.from_numpy(self.chance.normal(size=8)).float(), y


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job, Noisy()), passes=None)):
    train_step(x, y)
