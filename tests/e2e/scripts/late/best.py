"""The best loss of each rank, on the rank that has it only: kept from the tenth step on."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


class Best:
    """A loss."""

    def __init__(self) -> None:
        self.value = 100.0

    def state_dict(self) -> dict[str, float]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.value = state["value"]


best = Best()
job.track(model=model, optimizer=optimizer, best=best)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    begins = job.steps >= 9
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss, best=best.value)
    optimizer.step()
    optimizer.zero_grad()
    if begins and job.rank == 0:
        best.value = min(best.value, float(loss.detach()))
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
