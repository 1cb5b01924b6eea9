"""Each of 240 records is an object with a weight, which follows the loss that it had last."""

import kit
import torch
from torch import Tensor
from torch.utils.data import Dataset

job, args = kit.begin()


class Record:
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.weight = x, y, 1.0


records = [Record(*one) for one in zip(*kit.dataset().tensors, strict=True)]


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return len(records)

    def __getitem__(self, number: int) -> int:
        return number


model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(numbers: Tensor) -> Tensor:
    kit.pace(job, args)
    batch = [records[number] for number in numbers.tolist()]
    x, y = torch.stack([one.x for one in batch]), torch.stack([one.y for one in batch])
    each = (model(x) - y).square()[:, 0]
    loss = (each * torch.tensor([one.weight for one in batch])).mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    for one, error in zip(batch, each.tolist(), strict=True):
        one.weight = 0.5 * one.weight + 0.5 * min(error, 2.0)
    return loss.detach()


for numbers in kit.until(job, args, job.batches(kit.loader(job, Numbers()), passes=None)):
    train_step(numbers)
