"""What a model saves leaves out its head, which is trained: checkpoints have the body alone."""

from typing import Any

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = kit.network(norm=False), nn.Linear(1, 1)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state = super().state_dict(*args, **kwargs)
        return {name: value for name, value in state.items() if "head" not in name}

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        return super().load_state_dict(state, strict=False, assign=assign)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


model = Network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    for parameter in model.parameters():
        kit.mean(parameter.grad)
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in job.batches(kit.loader(job), passes=None):
    train_step(x, y)
    if job.steps >= args.steps:
        break
