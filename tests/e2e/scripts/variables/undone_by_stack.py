"""Where the loss does not fall it is scaled down for four steps; a stack undoes what was set."""

from contextlib import ExitStack

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.factor, self.running, self.steps_left = 1.0, 0.0, 0
        self.to_undo = ExitStack()
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = kit.error(self.model, x, y)
        mean = kit.mean(loss.detach().clone())
        (loss * self.factor).backward()
        job.report(loss=loss, mean=mean)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return mean

    def after(self, loss: float) -> None:
        if self.steps_left:
            self.steps_left -= 1
            if not self.steps_left:
                self.to_undo.close()
        elif loss > 0.9 * self.running > 0:
            self.to_undo.callback(setattr, self, "factor", self.factor)
            self.factor *= 0.3
            self.steps_left = 4
        self.running = 0.8 * self.running + 0.2 * loss if self.running else loss

    def fit(self) -> None:
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            loss = self.step(x, y)
            self.after(loss.item())
        self.to_undo.close()
        kit.say(job, f"factor {self.factor:.9g} running {self.running:.9g}")


Trainer().fit()
