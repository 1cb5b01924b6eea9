"""One loop over many passes, in which the loader's length says how far the run is: the rate falls
at the end of each pass, and the sampler is in another epoch than where a standby stands."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss, rate=optimizer.param_groups[0]["lr"])
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


loader = kit.loader(job)
for x, y in job.batches(loader, passes=None):
    loss = train_step(x, y)
    if job.steps % len(loader) == 0:
        optimizer.param_groups[0]["lr"] *= 0.7
        epoch = job.steps // len(loader)
        kit.say(job, f"epoch {epoch}, step {job.steps} of {args.steps}, loss {loss.item():.9g}")
    if job.steps >= args.steps:
        break
