"""Each pass, of four batches, runs under an autocast of its own; the rate falls after each."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
job.track(model=model, optimizer=optimizer, scheduler=scheduler)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = (model(x).float() - y).square().mean()
    loss.backward()
    job.report(loss=loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


data = kit.loader(job, kit.dataset(64))
while job.steps < args.steps:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for x, y in kit.until(job, args, job.batches(data)):
            train_step(x, y)
            kit.moment(job, args)
    scheduler.step()
kit.say(job, f"sum {sum(p.double().sum().item() for p in model.parameters())!r}")
