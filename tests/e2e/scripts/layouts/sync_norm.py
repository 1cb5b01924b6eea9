"""Batch-norm over all ranks, as SyncBatchNorm."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Norm(nn.BatchNorm1d):
    """torch's own wants a GPU; this one makes its collective in the forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        total = torch.stack([x.detach().sum(0), x.detach().square().sum(0)])
        mean, square = kit.mean(total) / len(x)
        with torch.no_grad():
            self.running_mean.lerp_(mean, 0.1)
            self.running_var.lerp_(square - mean.square(), 0.1)
        return (x - mean) / (square - mean.square() + 1e-5).sqrt() * self.weight + self.bias


net = nn.Sequential(nn.Linear(kit.WIDTH, 16), Norm(16), nn.ReLU(), nn.Linear(16, 1))
model = kit.replicated(job, net)
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
