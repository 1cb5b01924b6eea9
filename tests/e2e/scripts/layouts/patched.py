"""A method of torch's is wrapped for all of the process, as plug-ins do."""

from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
before = torch.optim.AdamW.step


def step(self: torch.optim.AdamW, *given: Any, **named: Any) -> Any:
    """A little less far."""
    result = before(self, *given, **named)
    with torch.no_grad():
        for group in self.param_groups:
            for one in group["params"]:
                one.mul_(0.999)
    return result


torch.optim.AdamW.step = step  # type: ignore[method-assign]
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
