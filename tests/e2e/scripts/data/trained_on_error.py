"""Every four steps the error on three batches of the training data is logged; the sampler
shuffles by how often it was gone over.
"""

import itertools
import logging
from collections.abc import Iterator

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

log = logging.getLogger("train")
job, args = kit.begin()


class Shuffled(Sampler[int]):
    def __init__(self, size: int) -> None:
        self.size, self.passes = size, 0

    def __iter__(self) -> Iterator[int]:
        seeded = torch.Generator().manual_seed(100 + self.passes)
        self.passes += 1
        order = torch.randperm(self.size, generator=seeded).tolist()
        return iter(order[job.rank :: job.world_size])

    def __len__(self) -> int:
        return self.size // job.world_size


net = kit.network(norm=False)
model = kit.replicated(job, net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
loader = DataLoader(kit.dataset(), 8, sampler=Shuffled(240))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def trained_on() -> float:
    net.eval()
    with torch.no_grad():
        errors = [kit.error(net, x, y) for x, y in itertools.islice(loader, 3)]
    net.train()
    return torch.stack(errors).mean().item()


for x, y in kit.until(job, args, job.batches(loader, passes=None)):
    train_step(x, y)
    if job.steps % 4 == 0:
        log.info("error on training data %.4f", trained_on())
    kit.moment(job, args)
kit.say(job, f"weights {sum(p.double().sum() for p in model.parameters()).item():.12g}")
