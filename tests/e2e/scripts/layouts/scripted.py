"""A model compiled by TorchScript, whose forward replaces a buffer, and a scaler that is off."""

import kit
import torch
from torch import Tensor, nn


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + x.mean()
        return x * (1 + 0.01 * torch.tanh(self.seen))


job, args = kit.begin()
layers = nn.Sequential(nn.Linear(kit.WIDTH, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))
net = torch.jit.script(nn.Sequential(Counting(), layers))
model = kit.replicated(job, net, broadcast_buffers=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=False)
job.track(model=model, optimizer=optimizer, scaler=scaler)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    scaler.scale(loss).backward()
    job.report(loss=loss)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
