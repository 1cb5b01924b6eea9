"""A loss that clips errors at several edges, a module of the script's own, is made anew every
second step with edges by a mean of the losses.
"""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Clipped(nn.Module):
    def __init__(self, *edges: float) -> None:
        super().__init__()
        self.edges = edges

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        errors = (output - y).abs()
        clipped = [torch.where(errors < one, errors.square(), one * errors) for one in self.edges]
        return torch.stack(clipped).mean()


class Trainer:
    def __init__(self) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.criterion, self.level = Clipped(0.5, 1.0, 2.0), 1.0
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = self.criterion(self.model(x), y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self) -> None:
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            loss = self.step(x, y)
            self.level = 0.8 * self.level + 0.2 * loss.item()
            if job.steps % 2 == 0:
                self.criterion = Clipped(0.3 * self.level, 0.6 * self.level, self.level)
        kit.say(job, f"level {self.level:.9g}")


Trainer().fit()
