"""A message hub that a metaclass keeps, and that is made when it is first asked for."""

from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Managed(type):
    def __init__(cls, *rest: Any) -> None:
        super().__init__(*rest)
        cls.made: dict[str, Any] = {}

    def get(cls, name: str) -> Any:
        if name not in cls.made:
            cls.made[name] = cls()
        return cls.made[name]


class Hub(metaclass=Managed):
    def __init__(self) -> None:
        self.scalars: dict[str, list[float]] = {}

    def put(self, name: str, value: float) -> None:
        self.scalars.setdefault(name, []).append(value)

    def mean(self, name: str) -> float:
        kept = self.scalars.get(name, [0.0])
        return sum(kept) / len(kept)


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    optimizer.param_groups[0]["lr"] = 1e-2 / (1 + Hub.get("train").mean("loss"))
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    Hub.get("train").put("loss", train_step(x, y).item())
