"""Layers whose gradients are large go slower: the optimizer keeps a level of each parameter in its
state."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
net = kit.network(norm=False)
model = kit.replicated(job, net)


class Trusted(torch.optim.SGD):
    def __init__(self, net: nn.Module, lr: float) -> None:
        layers = [one for one in net.modules() if isinstance(one, nn.Linear)]
        super().__init__([{"params": [*one.parameters()]} for one in layers], lr=lr, momentum=0.9)
        self.base = lr
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["level"] = 1.0

    def observe(self) -> None:
        for group in self.param_groups:
            levels = []
            for p in group["params"]:
                state = self.state[p]
                state["level"] = 0.7 * state["level"] + 0.3 * p.grad.norm().item()
                levels.append(state["level"])
            group["lr"] = self.base / (0.5 + sum(levels))


optimizer = Trusted(net, 0.05)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.observe()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
kit.say(job, f"rates {[round(group['lr'], 9) for group in optimizer.param_groups]}")
