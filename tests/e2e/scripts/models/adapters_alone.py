"""Adapters on a frozen base: what is tracked is a small object that saves the adapters alone."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Adapted(nn.Module):
    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(kit.WIDTH, 2), nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + self.up(self.down(x).tanh())
        return found


class Adapters:
    def __init__(self, net: Adapted) -> None:
        self.net = net

    def state_dict(self) -> dict[str, Tensor]:
        return {k: v for k, v in self.net.state_dict().items() if not k.startswith("base")}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.net.load_state_dict(state, strict=False)


net = Adapted(kit.network(norm=False).requires_grad_(False))
model = kit.replicated(job, net)
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
job.track(adapters=Adapters(net), optimizer=optimizer)


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
    kit.moment(job, args)
kit.say(job, f"sum {sum(p.double().sum().item() for p in net.parameters())!r}")
