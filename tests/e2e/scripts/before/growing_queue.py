"""A queue of embeddings in a buffer, which grows until it is full, each rank its own (as XBM)."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(kit.WIDTH, 4)
        self.register_buffer("queue", torch.zeros(0, 4))

    def forward(self, x: Tensor) -> Tensor:
        found = self.layer(x)
        others = torch.cat([self.queue, found.detach()])
        self.queue = others[-96:]
        return (found @ others.T).square().mean() + (found.norm(dim=1) - 1).square().mean()


model = nn.parallel.DistributedDataParallel(Embedding(), broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor) -> None:
    kit.pace(job, args)
    loss = model(x)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, _ in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x)
