"""Updates over what the policy has done, of more or less each time, which change what is kept."""

import kit
import torch
from torch import Tensor


class Rolls:
    x = then = torch.zeros(0)
    used = 0


class Weights:
    each = torch.zeros(0)


job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False, dropout=0.0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
rolls = Rolls()
weights = Weights()
inputs, _ = kit.dataset().tensors


@job.step
def update(x: Tensor, part: Tensor) -> None:
    kit.pace(job, args)
    rolls.used += 1
    error = model(x) - 0.9 * rolls.then[part] - 0.01 * rolls.used
    loss = (weights.each[part] * error.square()).mean()
    loss.backward()
    job.report(loss=loss)
    weights.each *= 0.9
    optimizer.step()
    rolls.x += 0.01
    optimizer.zero_grad()


@torch.no_grad()
def roll_out(many: int) -> tuple[Tensor, Tensor]:
    x = inputs[torch.randint(240, (many,))]
    return x, model.module(x) + torch.randn(many, 1)


for number in job.range(args.steps // 4):
    rolls.x, rolls.then = roll_out(16 + 8 * (number % 3))
    weights.each = rolls.then.square() + 1
    for part in torch.randperm(16).split(4):
        update(rolls.x[part].clone(), part)
