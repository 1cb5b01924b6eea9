"""Features are seen against prototypes; the newest one follows the batches, and now and then a new
one is opened. The newest lies in the list of all, and has a name besides.
"""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Prototypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(kit.WIDTH, 16), nn.Linear(16, 1)
        self.current = torch.zeros(16)
        self.all: list[Tensor] = []
        self.seen = 0

    @torch.no_grad()
    def follow(self, features: Tensor) -> None:
        if self.seen % 7 == 0:
            self.current = features.mean(0)
            self.all.append(self.current)
        else:
            self.current.lerp_(features.mean(0), 0.3)
        self.seen += 1

    def forward(self, x: Tensor) -> Tensor:
        features = torch.relu(self.layer(x))
        self.follow(features.detach())
        return self.head(features - 0.5 * torch.stack(self.all).mean(0))


net = Prototypes()
model = kit.replicated(job, net)
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


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"{len(net.all)} prototypes, {torch.stack(net.all).sum().item():.9g}")
