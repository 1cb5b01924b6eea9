"""Weights are drawn to where they were after the warm-up; before, the anchor is the weights."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Anchored(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(kit.WIDTH, 16), nn.Linear(16, 1)
        self.anchor = self.layer.weight.detach()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.layer(x)))

    def settle(self) -> None:
        self.anchor = self.layer.weight.detach().clone()

    def distance(self) -> Tensor:
        return (self.layer.weight - self.anchor).square().sum()


net = Anchored()
model = kit.replicated(job, net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    if job.steps == 5:
        net.settle()
    loss = kit.error(model, x, y) + 0.1 * net.distance()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"distance {net.distance().item():.9g}")
