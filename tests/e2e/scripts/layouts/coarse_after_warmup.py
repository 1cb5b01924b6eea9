"""A communication hook sums gradients exactly for four steps, and rounded to bfloat16 from then
on."""

import kit
import torch
import torch.distributed as dist
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


def exact(gradient: Tensor) -> Tensor:
    return gradient.clone()


def coarse(gradient: Tensor) -> Tensor:
    return gradient.bfloat16().float()


class Compression:
    def __init__(self) -> None:
        self.buckets, self.pack = 0, exact


def compressed(state: Compression, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    state.buckets += 1
    if state.buckets == 4:
        state.pack = coarse
    work = dist.all_reduce(state.pack(bucket.buffer()), async_op=True)
    return work.get_future().then(lambda done: done.value()[0] / job.world_size)


compression = Compression()
model.register_comm_hook(compression, compressed)


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
    kit.moment(job, args)
kit.say(job, f"{compression.buckets} buckets")
