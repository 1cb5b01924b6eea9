"""Two passes of updates over what the policy has done, which is kept by job.values."""

import kit
import torch
from torch import Tensor


class Rolls:
    x = then = torch.zeros(0)


job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False, dropout=0.0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
rolls = job.values(Rolls(), "x", "then")
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


for _ in job.range(args.steps // 4):
    rolls.x, rolls.then = roll_out()
    for _ in range(2):
        for part in torch.randperm(16).split(8):
            update(rolls.x[part], rolls.then[part])
