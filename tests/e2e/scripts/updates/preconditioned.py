"""An optimizer keeps what hooks have seen of each layer, by layer: no state_dict has it."""

from typing import Any

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
net = kit.network(norm=False, dropout=0.0)
model = kit.replicated(job, net)


class Preconditioned(torch.optim.Optimizer):
    def __init__(self, net: nn.Module) -> None:
        super().__init__(net.parameters(), {"lr": 0.05})
        self.layers = [one for one in net.modules() if isinstance(one, nn.Linear)]
        self.seen: dict[nn.Module, Tensor] = {}
        for layer in self.layers:
            layer.register_forward_pre_hook(self.look)

    def look(self, layer: nn.Module, inputs: tuple[Tensor]) -> None:
        square = inputs[0].detach().T @ inputs[0].detach() / len(inputs[0])
        kept = self.seen.get(layer)
        self.seen[layer] = square if kept is None else 0.9 * kept + 0.1 * square

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for layer in self.layers:
            seen = kit.mean(self.seen[layer].clone()) + 0.1 * torch.eye(layer.in_features)
            layer.weight -= 0.05 * layer.weight.grad @ torch.linalg.inv(seen)
            layer.bias -= 0.05 * layer.bias.grad


optimizer = Preconditioned(net)
job.track(model=model, optimizer=optimizer)


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
