"""Of two losses that one function makes the second one takes over."""

from collections.abc import Callable

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


def huber(delta: float) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.huber_loss(model(x), y, delta=delta)

    return loss


class Trainer:
    def __init__(self) -> None:
        self.losses = [huber(1.0), huber(0.1)]
        self.loss = self.losses[0]

    def go_on(self) -> None:
        if job.steps == 5:
            self.loss = self.losses[1]


trainer = Trainer()


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = trainer.loss(x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    trainer.go_on()
