"""The same Trainer, and job.values keeps two of its attributes."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.step, self.best = 0, float("inf")
        job.track(model=self.model, optimizer=self.optimizer)

    def train(self) -> None:
        make = job.step(self.make)
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            self.after(make(x, y).item())

    def make(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        self.optimizer.param_groups[0]["lr"] = 1e-2 * min(1.0, (self.step + 1) / 20)
        loss = kit.error(self.model, x, y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def after(self, loss: float) -> None:
        self.step, self.best = self.step + 1, min(self.best, loss)
        kit.say(job, f"step {self.step} best {self.best:.9g}")


trainer = Trainer()
job.values(trainer, "step", "best")
trainer.train()
