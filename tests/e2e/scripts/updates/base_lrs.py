"""A schedule by a function; for the last steps its base rate is cut, by the list that it has."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda made: 1 / (1 + 0.02 * made)
        )
        job.track(model=self.model, optimizer=self.optimizer, schedule=self.schedule)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = kit.error(self.model, x, y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self) -> None:
        rates = self.schedule.base_lrs
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            self.step(x, y)
            if job.steps == args.steps - 6:
                rates[0] *= 0.1
        kit.say(job, f"rate {self.schedule.get_last_lr()[0]:.9g}")


Trainer().fit()
