"""A queue by difficulty, whose entries are struck out where they lie, gives each batch two more."""

import heapq

import kit
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

job, args = kit.begin()
STRUCK = -1


class Hardest:
    def __init__(self) -> None:
        self.heap: list[list[float]] = []
        self.entries: dict[int, list[float]] = {}

    def put(self, sample: int, error: float) -> None:
        if sample in self.entries:
            self.entries.pop(sample)[1] = STRUCK
        entry = [-error, sample]
        self.entries[sample] = entry
        heapq.heappush(self.heap, entry)

    def take(self) -> int | None:
        while self.heap:
            _, sample = heapq.heappop(self.heap)
            if sample != STRUCK:
                del self.entries[int(sample)]
                return int(sample)
        return None


class Trainer:
    def __init__(self) -> None:
        x, y = kit.dataset().tensors
        self.data = TensorDataset(x, y, torch.arange(len(x)))
        self.model = kit.replicated(job, kit.network(norm=False))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.hardest = Hardest()
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor, samples: Tensor) -> Tensor:
        kit.pace(job, args)
        again = [one for one in (self.hardest.take(), self.hardest.take()) if one is not None]
        if again:
            more = self.data[again]
            x, y, samples = (torch.cat(pair) for pair in zip((x, y, samples), more, strict=True))
        errors = (self.model(x) - y).square().flatten()
        loss = errors.mean()
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        for sample, error in zip(samples.tolist(), errors.tolist(), strict=True):
            self.hardest.put(sample, error)
        return loss.detach()

    def fit(self) -> None:
        loader = kit.loader(job, self.data)
        for x, y, samples in kit.until(job, args, job.batches(loader, passes=None)):
            self.step(x, y, samples)
        struck = sum(sample == STRUCK for _, sample in self.hardest.heap)
        total = sum(error for error, _ in self.hardest.entries.values())
        kit.say(job, f"{len(self.hardest.heap)} in the queue, {struck} struck, total {total:.9g}")


Trainer().fit()
