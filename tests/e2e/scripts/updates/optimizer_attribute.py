"""An optimizer of the script's own keeps a number in an attribute that no state_dict has."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Warmed(torch.optim.SGD):
    made = 0

    def step(self, closure: None = None) -> None:
        self.made += 1
        for group in self.param_groups:
            group["lr"] = 0.05 / (1 + 0.1 * self.made)
        super().step(closure)


model = kit.replicated(job, kit.network())
optimizer = Warmed(model.parameters(), lr=0.05)
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
