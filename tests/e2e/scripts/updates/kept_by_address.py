"""An optimizer of the script's own finds each parameter's momentum by its id."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Averaging(torch.optim.Optimizer):
    def __init__(self, params: object, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.averages: dict[int, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                average = self.averages.setdefault(id(parameter), torch.zeros_like(parameter))
                average.mul_(0.9).add_(parameter.grad)
                parameter.sub_(average, alpha=group["lr"])


model = kit.replicated(job, kit.network())
optimizer = Averaging(model.parameters(), lr=0.02)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
