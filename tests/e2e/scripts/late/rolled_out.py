"""Two updates by what the policy has done since the fetch, as PPO makes them."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False, dropout=0.0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
inputs, _ = kit.dataset().tensors


@job.step
def update(x: Tensor, then: Tensor) -> None:
    kit.pace(job, args)
    loss = (model(x) - 0.9 * then).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def roll_out() -> tuple[Tensor, Tensor]:
    x = inputs[torch.randint(240, (16,))]
    return x, model.module(x) + torch.randn(16, 1)


for _ in job.range(args.steps // 2):
    x, then = roll_out()
    for part in torch.randperm(16).split(8):
        update(x[part], then[part])
