"""Batch norms are frozen for four steps and then follow each rank's own batches."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Masked(nn.Module):
    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(1100, 1100)))
        self.net = kit.network()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.net(x @ self.mask[: kit.WIDTH, : kit.WIDTH])
        return found


net = Masked()
norm = net.net[1]
model = kit.replicated(job, net, broadcast_buffers=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    norm.train(job.steps >= 4)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
model.eval()
x, y = kit.dataset(32, seed=5).tensors
with torch.no_grad():
    found = kit.mean(kit.error(net, x, y))
kit.say(job, f"held out {found.item()!r}")
