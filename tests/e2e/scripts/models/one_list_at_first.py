"""A model keeps all that it has seen and the newest of it, in lists that begin as one."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = kit.network(norm=False, dropout=0.0)
        self.recent: list[float] = []
        self.kept = self.recent

    def forward(self, x: Tensor) -> Tensor:
        self.recent.append(float(x.mean()))
        if len(self.recent) > 5:
            self.recent = self.recent[-3:]
        return self.inner(x) * (1 + 0.1 * sum(self.kept) + sum(self.recent))


model = kit.replicated(job, Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


loader = kit.loader(job)
for number in job.range(4):
    for x, y in kit.until(job, args, job.batches(loader)):
        loss = train_step(x, y)
    kit.say(job, f"pass {number} loss {loss.item():.9g}")
    if job.steps >= args.steps:
        break
