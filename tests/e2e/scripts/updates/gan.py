"""A GAN: the judge's update lies between the passes of the maker."""

import kit
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

job, args = kit.begin()
maker = nn.parallel.DistributedDataParallel(nn.Linear(4, kit.WIDTH))
judge = kit.replicated(job, kit.network(norm=False), broadcast_buffers=False)
makers = torch.optim.Adam(maker.parameters(), lr=1e-3)
judges = torch.optim.Adam(judge.parameters(), lr=1e-3)
job.track(maker=maker, judge=judge, makers=makers, judges=judges)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    made = maker(torch.randn(len(x), 4))
    judges.zero_grad()
    judged = softplus(-judge(x)).mean() + softplus(judge(made.detach())).mean()
    judged.backward()
    judges.step()
    makers.zero_grad()
    fooled = softplus(-judge(made)).mean()
    fooled.backward()
    makers.step()
    return (judged + fooled).detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
