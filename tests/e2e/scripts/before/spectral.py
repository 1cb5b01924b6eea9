"""Spectral norm: the forward pass goes one step of a power iteration, in buffers."""

import kit
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

job, args = kit.begin()
net = nn.Sequential(spectral_norm(nn.Linear(kit.WIDTH, 16)), nn.Tanh(), nn.Linear(16, 1))
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
