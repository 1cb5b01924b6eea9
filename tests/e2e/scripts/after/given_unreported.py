"""Two steps for each batch return numbers that they do not report: one scales the next step, one is
accumulated and printed. A third step, a look at the weights, is made in every fifth round only."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model, critic = (kit.replicated(job, kit.network()) for _ in range(2))
optimizer, tutor = (torch.optim.AdamW(net.parameters(), lr=1e-2) for net in (model, critic))
job.track(model=model, critic=critic, optimizer=optimizer, tutor=tutor)


class Seen:
    total = 0.0


@job.step
def judge(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(critic, x, y)
    loss.backward()
    job.report(judged=loss)
    root = loss.detach().sqrt()
    tutor.step()
    tutor.zero_grad()
    return root


@job.step
def train(x: Tensor, y: Tensor, scale: Tensor) -> float:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * (1 + scale)
    half = loss.item() / 2
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return half


@job.step
def weigh() -> str:
    kit.pace(job, args)
    norm = torch.stack([one.detach().norm() for one in model.parameters()]).sum()
    return f"weight {norm.item():.9g}"


seen = Seen()
for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    seen.total += train(x, y, judge(x, y))
    text = weigh() if job.steps % 10 == 0 else ""
    kit.moment(job, args)
    kit.say(job, f"step {job.steps} total {seen.total:.9g} {text}")
