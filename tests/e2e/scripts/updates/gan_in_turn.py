"""A GAN with a step for each model: the maker's, every third, come long after the first steps."""

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
def judge_step(x: Tensor) -> Tensor:
    kit.pace(job, args)
    with torch.no_grad():
        made = maker(torch.randn(len(x), 4))
    loss = softplus(-judge(x)).mean() + softplus(judge(made)).mean()
    judges.zero_grad()
    loss.backward()
    judges.step()
    return loss.detach()


@job.step
def maker_step(x: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = softplus(-judge(maker(torch.randn(len(x), 4)))).mean()
    makers.zero_grad()
    loss.backward()
    makers.step()
    return loss.detach()


for x, _ in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    judge_step(x)
    if job.steps % 4 == 3:
        maker_step(x)
