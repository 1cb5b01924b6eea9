"""A communication hook of one's own that keeps a momentum in its closure, and is given no state."""

from collections.abc import Callable

import kit
import torch
import torch.distributed as dist
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job.track(model=model, optimizer=optimizer)


def signs_of_momentum() -> Callable[[None, dist.GradBucket], torch.futures.Future[Tensor]]:
    momentum: dict[int, Tensor] = {}

    def signs(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        momentum[bucket.index()] = 0.9 * momentum.get(bucket.index(), 0) + bucket.buffer()
        work = dist.all_reduce(momentum[bucket.index()].sign(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    return signs


model.register_comm_hook(None, signs_of_momentum())


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
