"""numpy's interp warms up the rate, as YOLO does; a schedule sets it once a data pass."""

import kit
import numpy
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 0.5**done)
job.track(model=model, optimizer=optimizer, schedule=schedule)


@job.step
def train_step(x: Tensor, y: Tensor, number: int) -> Tensor:
    kit.pace(job, args)
    if number <= 5:
        optimizer.param_groups[0]["lr"] = numpy.interp(number, [0, 5], [0.0, 0.08])
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss, rate=float(optimizer.param_groups[0]["lr"]))
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for _ in job.range(4):
    for number, (x, y) in enumerate(job.batches(kit.loader(job))):
        train_step(x, y, number)
    schedule.step()
