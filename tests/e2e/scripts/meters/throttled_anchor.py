"""Parameters are held near a slow average of themselves; a throttle says at times how far it is."""

import time

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Throttle:
    def __init__(self, every_s: float) -> None:
        self.every_s, self.last = every_s, time.time()

    def is_due(self) -> bool:
        now = time.time()
        if now - self.last < self.every_s:
            return False
        self.last = now
        return True


class Anchor:
    def __init__(self, net: nn.Module) -> None:
        self.last = [one.detach().clone() for one in net.parameters()]

    def distance(self, net: nn.Module) -> Tensor:
        pairs = zip(net.parameters(), self.last, strict=True)
        return sum((p - old).square().sum() for p, old in pairs)

    @torch.no_grad()
    def move(self, net: nn.Module) -> None:
        for old, p in zip(self.last, net.parameters(), strict=True):
            old.lerp_(p, 0.2)


throttle, anchor = Throttle(600.0), Anchor(model)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y) + 0.1 * anchor.distance(model)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    anchor.move(model)
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if throttle.is_due():
        kit.say(job, f"{job.steps} steps")
    kit.moment(job, args)
