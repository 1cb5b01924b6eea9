"""What is decided now takes effect two steps later: Python's own scheduler has it until then, with
steps for its time.
"""

import sched

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
scale, level = 1.0, 1.0


def rescale(to: float) -> None:
    global scale
    scale = to


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = scale * kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


plan = sched.scheduler(timefunc=lambda: job.steps, delayfunc=lambda steps: None)
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    level = 0.8 * level + 0.2 * loss.item()
    plan.run(blocking=False)
    plan.enter(2, 1, rescale, (1 / (0.3 + level),))
kit.say(job, f"scale {scale:.9g}, {len(plan.queue)} to come")
