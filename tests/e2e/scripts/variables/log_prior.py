"""Weights have a prior, whose spread follows a mean of the losses; kept is what says its log."""

import kit
import torch
from torch import Tensor
from torch.distributions import Normal

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
log_prior, spread = Normal(0.0, 1.0).log_prob, 1.0


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    prior = torch.stack([log_prior(one).mean() for one in model.parameters()]).sum()
    loss = kit.error(model, x, y) - 0.02 * prior
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    spread = 0.9 * spread + 0.1 * loss.item()
    if job.steps % 2 == 0:
        log_prior = Normal(0.0, 0.1 + abs(spread)).log_prob
kit.say(job, f"spread {spread:.9g}")
