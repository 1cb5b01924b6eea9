"""A sampler prefers hard samples, the more so the higher the loss was: it is told each step's loss,
and draws the next pass by the mean of these.
"""

from collections.abc import Iterator

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

job, args = kit.begin()


class HardFirst(Sampler[int]):
    def __init__(self, difficulty: Tensor, many: int) -> None:
        self.difficulty, self.many = difficulty, many
        self.sharpness, self.passes = 1.0, 0

    def note(self, loss: float) -> None:
        self.sharpness = 0.9 * self.sharpness + 0.1 * loss

    def __iter__(self) -> Iterator[int]:
        chance = torch.Generator().manual_seed(100 * self.passes + job.rank)
        self.passes += 1
        likely = (self.difficulty * self.sharpness).softmax(0)
        return iter(torch.multinomial(likely, self.many, True, generator=chance).tolist())

    def __len__(self) -> int:
        return self.many


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = kit.dataset()
sampler = HardFirst(data.tensors[1].flatten().abs(), 120)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


loader = DataLoader(data, 8, sampler=sampler)
for x, y in kit.until(job, args, job.batches(loader, passes=None)):
    sampler.note(train_step(x, y).item())
kit.say(job, f"sharpness {sampler.sharpness:.9g}, {sampler.passes} passes begun")
