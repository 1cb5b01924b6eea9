"""Input and output share their weights."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(kit.WIDTH, 16), nn.Linear(16, 16)
        self.up_again = nn.Linear(kit.WIDTH, 16)
        self.up_again.weight = self.up.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.down(self.up(x).tanh())
        return (hidden * self.up_again(x)).mean(1, keepdim=True)


model = kit.replicated(job, Tied())
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
