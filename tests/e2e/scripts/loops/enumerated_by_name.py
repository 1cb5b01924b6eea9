"""One function trains and evaluates: its batches are counted, and kept in a
variable before they are drawn; the rate follows from the count."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)
data, held_out = kit.loader(job), kit.loader(job, kit.dataset(64, seed=8))


@job.step
def train_step(x: Tensor, y: Tensor, count: int) -> None:
    kit.pace(job, args)
    optimizer.param_groups[0]["lr"] = 0.05 / (1 + count - 300)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


def run(is_training: bool) -> None:
    batches = enumerate(job.batches(data), start=300) if is_training else enumerate(held_out)
    total = 0.0
    for count, (x, y) in batches:
        if is_training:
            train_step(x, y, count)
        else:
            with torch.no_grad():
                total = (total * count + kit.error(model, x, y).item()) / (count + 1)
        if is_training and job.steps >= args.steps:
            break
    if not is_training:
        kit.say(job, f"{job.steps} {total:.9g}")


while job.steps < args.steps:
    run(is_training=True)
    run(is_training=False)
