"""Rare inputs weigh more: how often each level was seen is counted, and is saved with the model."""

from collections import Counter
from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Frequencies:
    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def weights(self, x: Tensor) -> Tensor:
        levels = x[:, 0].round().int().tolist()
        self.counts.update(levels)
        total = sum(self.counts.values())
        return torch.tensor([[(total / self.counts[level]) ** 0.5] for level in levels])

    def state_dict(self) -> dict[str, Any]:
        return {"counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts.update(state["counts"])


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
frequencies = Frequencies()
job.track(model=model, optimizer=optimizer, frequencies=frequencies)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = (frequencies.weights(x) * (model(x) - y).square()).mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"seen {sorted(frequencies.counts.items())}")
