"""A communication hook of one's own: the largest gradients go, and what stays behind waits in an
object of the script."""

import kit
import torch
import torch.distributed as dist
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Feedback:
    def __init__(self) -> None:
        self.left: dict[int, Tensor] = {}
        self.calls = 0


def largest(feedback: Feedback, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    gradient = bucket.buffer() + feedback.left.get(bucket.index(), 0)
    sent = gradient * (gradient.abs() >= gradient.abs().quantile(0.7))
    feedback.left[bucket.index()] = gradient - sent
    feedback.calls += 1
    work = dist.all_reduce(sent, async_op=True)
    return work.get_future().then(lambda done: done.value()[0] / job.world_size)


feedback = Feedback()
model.register_comm_hook(feedback, largest)


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
kit.say(job, f"{feedback.calls} buckets")
