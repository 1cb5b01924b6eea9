"""No DDP: hooks of the nodes that accumulate gradients clip each by its usual norm."""

from collections.abc import Callable
from typing import Any

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
model = kit.network(norm=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


def clips(parameter: nn.Parameter) -> Callable[..., None]:
    """To be called once the gradient is there."""
    usual = 0.05

    def clip(*unused: Any) -> None:
        nonlocal usual
        norm = parameter.grad.norm().item()
        if norm > usual:
            parameter.grad.mul_(usual / norm)
        usual = 0.9 * usual + 0.1 * norm

    return clip


nodes = []
for parameter in model.parameters():
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    node.register_hook(clips(parameter))
    nodes.append(node)  # Nobody else keeps it alive.


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    for parameter in model.parameters():
        kit.mean(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
