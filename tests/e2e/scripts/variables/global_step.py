"""A trainer whose steps count themselves, in epochs that are shorter than a standby's looks."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Trainer:
    """Counts in its step, behind the update."""

    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.global_step = 0
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> None:
        kit.pace(job, args)
        loss = kit.error(self.model, x, y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.global_step += 1

    def fit(self) -> None:
        loader = kit.loader(job)
        while self.global_step < args.steps:
            for x, y in job.batches(loader):
                self.step(x, y)
                if self.global_step % 5 == 0:
                    kit.say(job, f"{self.global_step}")
                if self.global_step >= args.steps:
                    break


Trainer().fit()
