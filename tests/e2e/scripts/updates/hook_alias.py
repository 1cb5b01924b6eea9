"""A communication hook notes norms of gradients; from the sixth one on it limits them by those that
are its reference: the list that goes on.
"""

import kit
import torch
import torch.distributed as dist
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


class Norms:
    def __init__(self) -> None:
        self.recent: list[float] = []
        self.reference: list[float] = []
        self.calls = 0

    def limit(self) -> float:
        return 0.5 * sum(self.reference) / len(self.reference) if self.reference else 1e9


def limited(norms: Norms, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    norm = bucket.buffer().norm().item()
    norms.calls += 1
    norms.recent.append(norm)
    if len(norms.recent) > 8:
        norms.recent.pop(0)
    if norms.calls == 6:
        norms.reference = norms.recent
    sent = bucket.buffer() * min(1.0, norms.limit() / (norm + 1e-9))
    work = dist.all_reduce(sent, async_op=True)
    return work.get_future().then(lambda done: done.value()[0] / job.world_size)


norms = Norms()
model.register_comm_hook(norms, limited)


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
kit.say(job, f"limit {norms.limit():.9g}")
