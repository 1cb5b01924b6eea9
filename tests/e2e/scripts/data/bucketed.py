"""Batches of like length; what a pass has left over comes first in the next one."""

from collections.abc import Iterator
from typing import ClassVar

import kit
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

job, args = kit.begin()


class Config:
    max_len = 5
    longest = 10
    levels: ClassVar[list[tuple[int, int]]] = []


class BucketSampler:
    """Of sequences; each rank takes batches of its own."""

    def __init__(self, lengths: list[int], size: int) -> None:
        self.lengths, self.size = lengths, size
        self.leftover: list[int] = []
        self.passes = 0

    def __iter__(self) -> Iterator[list[int]]:
        chance = torch.Generator().manual_seed(77 + self.passes)
        self.passes += 1
        short = [n for n, length in enumerate(self.lengths) if length <= Config.max_len]
        drawn = [short[n] for n in torch.randperm(len(short), generator=chance)[:104].tolist()]
        pool = sorted(self.leftover + drawn, key=lambda n: self.lengths[n])
        whole = len(pool) // (self.size * job.world_size) * self.size * job.world_size
        self.leftover = pool[whole:]
        batches = [pool[at : at + self.size] for at in range(0, whole, self.size)]
        yield from batches[job.rank :: job.world_size]


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(2, 12, batch_first=True), nn.Linear(12, 1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.out(self.gru(rows)[0].mean(1))


chance = torch.Generator().manual_seed(12)
texts = [torch.randn(3 + n % 8, 2, generator=chance) for n in range(240)]
sampler = BucketSampler([len(one) for one in texts], 8)
loader = DataLoader(
    texts, batch_sampler=sampler, collate_fn=lambda rows: pad_sequence(rows, batch_first=True)
)
model = kit.replicated(job, Reader())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(rows: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = (model(rows) - rows.sum((1, 2))[:, None].tanh()).square().mean()
    loss.backward()
    job.report(loss=loss, length=rows.shape[1])
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


while job.steps < args.steps:
    seen = []
    for rows in kit.until(job, args, job.batches(loader)):
        seen.append(train_step(rows).item())
        kit.moment(job, args)
    error = kit.mean(torch.tensor(sum(seen) / len(seen))).item()
    if error < 0.7 and Config.max_len < Config.longest:
        Config.max_len += 1
        Config.levels.append((sampler.passes, Config.max_len))
    kit.say(job, f"{sampler.passes} {len(seen)} {error:.9g} {Config.levels} {sampler.leftover}")
