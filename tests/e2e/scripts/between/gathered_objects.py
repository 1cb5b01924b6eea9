"""Objects of all ranks are gathered between steps, and what comes rules the rate."""

import kit
import torch
import torch.distributed as dist
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    loss = train_step(x, y)
    if job.steps % 3 == 0:
        kit.moment(job, args)
        found: list[dict[str, float]] = [{}] * job.world_size
        dist.all_gather_object(found, {"rank": job.rank, "loss": loss.item()})
        optimizer.param_groups[0]["lr"] = 1e-2 / (1 + max(one["loss"] for one in found))
        kit.say(job, f"step {job.steps} {found}")
