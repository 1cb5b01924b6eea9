"""A meter of each rank's own losses, kept by name, and one with a state of its own that is tracked:
both are emptied as a pass of five batches begins, on all ranks alike."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


class Meter:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float) -> None:
        self.total += value
        self.count += 1

    def state_dict(self) -> dict[str, float]:
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.total, self.count = state["total"], int(state["count"])


kept, tracked = Meter(), Meter()
job.track(model=model, optimizer=optimizer, tracked=tracked)


@job.step
def train_step(x: Tensor, y: Tensor) -> float:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


loader = kit.loader(job, kit.dataset(80))
for number in job.range(30):
    kept.reset()
    tracked.reset()
    for x, y in kit.until(job, args, job.batches(loader)):
        value = train_step(x, y)
        kept.update(value)
        tracked.update(value * value)
    kit.say(job, f"pass {number} {kept.total / kept.count:.9g} {tracked.total:.9g}")
    if job.steps >= args.steps:
        break
