"""A memory bank of the script's own class, larger than 64 KiB, written to before the update."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Bank:
    def __init__(self) -> None:
        self.values, self.count = torch.zeros(40_000), torch.zeros(())

    def add(self, loss: Tensor) -> Tensor:
        self.count += 1
        self.values[int(self.count) :: 97] += loss
        return self.values.mean()

    def state_dict(self) -> dict[str, Tensor]:
        return {"values": self.values, "count": self.count}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.values, self.count = state["values"], state["count"]


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
bank = Bank()
job.track(bank=bank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss = loss * (1 + bank.add(kit.mean(loss.detach().clone())))
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
