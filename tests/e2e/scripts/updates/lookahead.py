"""An optimizer around another, without settings of its own: every fifth step it looks back."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.count = inner, 0
        super().__init__([p for group in inner.param_groups for p in group["params"]], {})
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def step(self) -> None:
        self.inner.step()
        self.count += 1
        if self.count % 5 == 0:
            for slow, p in zip(self.slow, self.param_groups[0]["params"], strict=True):
                slow.add_(p.detach() - slow, alpha=0.5)
                p.data.copy_(slow)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)


model = kit.replicated(job, kit.network())
optimizer = Lookahead(torch.optim.AdamW(model.parameters(), lr=1e-2))
job.track(model=model, optimizer=optimizer, inner=optimizer.inner)


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
    train_step(x, y)
