"""A guard with a state of its own lowers the rate on a plateau, and weighs each step by a running
threshold of the loss.
"""

from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


class Guard:
    def __init__(self) -> None:
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
        self.threshold = 1.0

    def weigh(self, loss: float) -> float:
        weight = self.threshold / (self.threshold + loss)
        self.threshold = 0.9 * self.threshold + 0.1 * loss
        return weight

    def state_dict(self) -> dict[str, Any]:
        return {"plateau": self.plateau.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.plateau.load_state_dict(state["plateau"])


guard = Guard()
job.track(model=model, optimizer=optimizer, guard=guard)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    mean = kit.mean(loss.detach().clone()).item()
    (loss * guard.weigh(mean)).backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    guard.plateau.step(mean)
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
kit.say(job, f"threshold {guard.threshold:.12g}")
