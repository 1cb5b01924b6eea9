"""A scale of the loss that the script keeps up by itself, in an object with slots."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


class Scaler:
    __slots__ = ("good", "scale")

    def __init__(self) -> None:
        self.good, self.scale = 0, 2.0**12

    def update(self, *, overflown: bool) -> None:
        self.good = 0 if overflown else self.good + 1
        if overflown:
            self.scale /= 2
        elif self.good % 3 == 0:
            self.scale *= 4

    def state_dict(self) -> dict[str, float]:
        return {"good": self.good, "scale": self.scale}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.good, self.scale = int(state["good"]), state["scale"]


scaler = Scaler()
job.track(model=model, optimizer=optimizer, scaler=scaler)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    (loss * scaler.scale).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    overflown = bool(norm > 1e6)
    job.report(loss=loss, scale=scaler.scale)
    if not overflown:
        for one in model.parameters():
            one.grad /= scaler.scale
        optimizer.step()
    scaler.update(overflown=overflown)
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
