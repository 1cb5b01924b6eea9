"""By what rule an error counts is a line of text, compiled anew from the loss of each step."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

RULE = "error / (0.5 + {level})"
rule = compile(RULE.format(level=1.0), "rule", "eval")


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = eval(rule, {"error": kit.error(model, x, y)})
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    rule = compile(RULE.format(level=repr(loss.item())), "rule", "eval")
    kit.moment(job, args)
