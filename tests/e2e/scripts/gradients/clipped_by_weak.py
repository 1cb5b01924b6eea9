"""Moving norms of gradients, by parameter, in a dict that keeps no parameter alive."""

import kit
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)
norms = WeakTensorKeyDictionary()


def clip() -> None:
    for p in model.parameters():
        norm = p.grad.norm().item()
        norms[p] = 0.9 * norms.get(p, norm) + 0.1 * norm
        p.grad.mul_(min(1.0, norms[p] / (norm + 1e-9)))


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    clip()
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
