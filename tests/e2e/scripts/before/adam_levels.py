"""AdamW's state of each parameter also has the level of its gradients, by which the rate is set."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


def set_rate() -> None:
    for p, state in optimizer.state.items():
        norm = p.grad.norm().item()
        state["level"] = 0.7 * state.get("level", norm) + 0.3 * norm
    levels = [state["level"] for state in optimizer.state.values()]
    optimizer.param_groups[0]["lr"] = 1e-2 / (0.5 + sum(levels))


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    set_rate()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
kit.say(job, f"rate {optimizer.param_groups[0]['lr']:.9g}")
