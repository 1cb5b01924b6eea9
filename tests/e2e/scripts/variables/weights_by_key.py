"""A kind of batch weighs less the more often it was asked for, by `[]`, lately."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Weights:
    """By kind: how many rounds ago each was asked for."""

    def __init__(self, kinds: list[str]) -> None:
        self.ages: dict[str, list[int]] = {kind: [] for kind in kinds}

    def __getitem__(self, kind: str) -> float:
        known = self.ages[kind]
        known.append(0)
        return 1.0 / len(known) ** 0.5

    def grow_older(self) -> None:
        for kind, known in self.ages.items():
            self.ages[kind] = [age + 1 for age in known if age < 6]


weights = Weights(["low", "high"])


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * weights["high" if y.mean().item() > 0 else "low"]
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    weights.grow_older()
    kit.moment(job, args)
