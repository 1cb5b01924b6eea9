"""The same, in a tracked module with a buffer."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Total(nn.Module):
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
meter = Total()
job.track(meter=meter)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    meter.total += loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.steps % 10 == 0:
        kit.moment(job, args)
        kit.say(job, f"step {job.steps} mean {kit.mean(meter.total.clone()).item() / 10:.9g}")
        meter.total.zero_()
