"""A tracked mean has a part with an attribute of the same name as one that is in its state."""

import kit
from torch import Tensor, optim

job, args = kit.begin()


class Skipped:
    def __init__(self) -> None:
        self.count = 0


class Mean:
    def __init__(self) -> None:
        self.skipped, self.count = Skipped(), 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


mean = Mean()
model = kit.replicated(job, kit.network())
optimizer = optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer, mean=mean)


@job.step
def step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y) * (1 + 0.01 * (mean.skipped.count % 7 + mean.count % 3))
    loss.backward()
    job.report(loss=loss)
    mean.count += 1
    mean.skipped.count += 2
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    step(x, y)
    kit.say(job, f"{mean.count} {mean.skipped.count}")
