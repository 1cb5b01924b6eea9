"""Behind its update a step draws from the generator that its loader shuffles with."""

import kit
import torch
from torch import Tensor
from torch.utils.data import DataLoader

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
generator = torch.Generator().manual_seed(5)
loader = DataLoader(kit.dataset(120), 8, shuffle=True, drop_last=True, generator=generator)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn((), generator=loader.generator), alpha=1e-3)
    return loss.detach()


for x, y in kit.until(job, args, job.batches(loader, passes=None)):
    train_step(x, y)
    kit.moment(job, args)
kit.say(job, f"sum {sum(p.double().sum().item() for p in model.parameters())!r}")
