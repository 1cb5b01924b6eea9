"""Negatives from a window of the last features, which is made shorter every other step."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Contrast(nn.Module):
    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.randn(80, 4), persistent=False)
        self.body = nn.Sequential(nn.Linear(kit.WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        found = self.head(self.body(x))
        loss: Tensor = (found @ self.window.clone().T).logsumexp(1).mean()
        with torch.no_grad():
            self.window[8:] = self.window[:-8].clone()
            self.window[:8] = found
        return loss + (found.norm(dim=1) - 1).square().mean()


net = Contrast()
model = kit.replicated(job, net, broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor) -> Tensor:
    kit.pace(job, args)
    if job.steps % 2 == 1:
        net.window.resize_(len(net.window) - 2, 4)
    loss = model(x)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, _ in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x)
    kit.moment(job, args)
kit.say(job, f"window {len(net.window)} of {net.window.double().sum().item()!r}")
