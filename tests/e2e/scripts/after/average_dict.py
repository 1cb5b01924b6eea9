"""An average of the weights in a dict of tensors, which is its state_dict(), trades places with the
weights for an evaluation between two steps."""

from typing import Any

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
held_x, held_y = kit.dataset(64, seed=8).tensors


class Average:
    def __init__(self, net: nn.Module) -> None:
        self.shadow = {name: p.detach().clone() for name, p in net.named_parameters()}

    def update(self, net: nn.Module) -> None:
        for name, p in net.named_parameters():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * p.detach()

    def trade(self, net: nn.Module) -> None:
        for name, p in net.named_parameters():
            kept = p.data.clone()
            p.data.copy_(self.shadow[name])
            self.shadow[name] = kept

    def state_dict(self) -> dict[str, Tensor]:
        return self.shadow

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow = {name: value.clone() for name, value in state.items()}


average = Average(model.module)
job.track(model=model, optimizer=optimizer, average=average)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    average.update(model.module)
    if job.steps % 5 == 0:
        average.trade(model.module)
        model.eval()
        with torch.no_grad():
            kit.say(job, f"average {kit.error(model.module, held_x, held_y).item():.9g}")
        model.train()
        average.trade(model.module)
