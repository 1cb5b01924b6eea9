"""Pruned once, at the ninth step: the weakest units are masked, by `.data`, in a buffer that no
checkpoint need have.
"""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(kit.WIDTH, 16), nn.Linear(16, 1)
        self.register_buffer("mask", torch.ones(16), persistent=False)

    def prune(self, many: int) -> None:
        weakest = self.layer.weight.detach().norm(dim=1).argsort()[:many]
        self.mask.data[weakest] = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.layer(x)) * self.mask)


net = Masked()
model = kit.replicated(job, net, broadcast_buffers=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    if job.steps == 8:
        net.prune(6)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"{int(net.mask.sum())} units are left")
