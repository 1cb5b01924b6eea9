"""DDP with find_unused_parameters: half of the steps, by chance, leave a layer out."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.extra, self.last = kit.network(), nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.first(x)
        if torch.rand(()) < 0.5:
            found = found + self.extra(found)
        result: Tensor = self.last(found)
        return result


model = kit.replicated(job, Skipping(), find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
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
