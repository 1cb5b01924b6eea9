"""A codebook follows the features; its least used code goes now and then, through `.data`."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Quantized(nn.Module):
    codes: Tensor
    used: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(48, 16))
        self.register_buffer("used", torch.ones(48))
        self.body = nn.Sequential(nn.Linear(kit.WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.body(x)
        with torch.no_grad():
            nearest = torch.cdist(found, self.codes).argmin(1)
            hits = nn.functional.one_hot(nearest, len(self.codes)).float()
            many, sums = kit.mean(hits.sum(0)), kit.mean(hits.T @ found)
            self.used.mul_(0.9).add_(many, alpha=0.1)
            self.codes.lerp_(torch.where(many[:, None] > 0, sums / many[:, None], self.codes), 0.1)
        result: Tensor = self.head(found + (self.codes[nearest] - found).detach())
        return result + (found - self.codes[nearest]).square().mean()

    def drop_one(self) -> None:
        keep = self.used.argsort(descending=True)[:-1].sort().values
        self.codes.data = self.codes[keep]
        self.used.data = self.used[keep]


net = Quantized()
model = kit.replicated(job, net, broadcast_buffers=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    if job.steps % 2 == 1:
        net.drop_one()
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"codes {len(net.codes)} of {net.codes.double().sum().item()!r}")
