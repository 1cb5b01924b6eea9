"""Two kinds of step share a batch, the second once or twice; averages of both are kept, updated in
the very line that calls the step, and weigh the first."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False, dropout=0.0))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


class Balance:
    first = second = 1.0


balance = Balance()
job.track(model=model, optimizer=optimizer)


@job.step
def first_step(x: Tensor, y: Tensor) -> float:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * (1 + balance.second % 1)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


@job.step
def second_step(x: Tensor, y: Tensor) -> float:
    kit.pace(job, args)
    loss = (model(x) - y).abs().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    balance.first = 0.9 * balance.first + 0.1 * first_step(x, y)
    for _ in range(2 if job.steps % 5 < 2 else 1):
        balance.second = 0.9 * balance.second + 0.1 * second_step(x, y)
    kit.say(job, f"{balance.first:.9f} {balance.second:.9f}")
