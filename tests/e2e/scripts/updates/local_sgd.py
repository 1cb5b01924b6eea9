"""Local SGD: its optimizer counts steps that only its own state_dict() has, and averages behind the
update."""

import kit
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local_sgd
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

WARM_UP = 6

job, args = kit.begin()
model = kit.replicated(job, kit.network())
state = local_sgd.PostLocalSGDState(None, dist.new_group(), WARM_UP)
model.register_comm_hook(state, local_sgd.post_localSGD_hook)
averager = PeriodicModelAverager(period=4, warmup_steps=WARM_UP)
optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), averager)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x, y):
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"iteration {state.iter}, averager at step {averager.step}")
