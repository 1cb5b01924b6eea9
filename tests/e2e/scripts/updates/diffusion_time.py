"""Diffusion: `time` is a step of it, and its sampler goes where the loss is."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Denoiser(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width + 1, 16), nn.SiLU(), nn.Linear(16, width))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        out: Tensor = self.layers(torch.cat([x, time[:, None]], 1))
        return out


class Sampler:
    def __init__(self) -> None:
        self.centre = 0.5

    def draw(self, many: int) -> Tensor:
        return (self.centre + 0.2 * torch.randn(many)).clamp(0, 1)

    def update(self, time: Tensor, losses: Tensor) -> None:
        weights = losses / losses.sum()
        self.centre = 0.5 * self.centre + 0.5 * time.mul(weights).sum().item()


model = kit.replicated(job, Denoiser(kit.WIDTH))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
sampler = Sampler()


@job.step
def train_step(x: Tensor) -> None:
    kit.pace(job, args)
    time = sampler.draw(len(x))
    noise = torch.randn_like(x)
    noisy = (1 - time[:, None]) * x + time[:, None] * noise
    losses = (model(noisy, time) - noise).square().mean(1)
    loss = losses.mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    sampler.update(time, losses.detach())


for x, _ in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x)
