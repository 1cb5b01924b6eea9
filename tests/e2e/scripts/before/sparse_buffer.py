"""A graph's edges as a sparse buffer."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        edges = torch.randint(8, (2, 20), generator=torch.Generator().manual_seed(1))
        self.register_buffer("edges", torch.sparse_coo_tensor(edges, torch.ones(20), (8, 8)))
        self.inner, self.outer = nn.Linear(kit.WIDTH, 16), nn.Linear(16, 1)

    def forward(self, nodes: Tensor) -> Tensor:
        return self.outer(torch.sparse.mm(self.edges, self.inner(nodes).relu()))


model = Graph()
torch.manual_seed(100 + job.rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    for weights in model.parameters():
        kit.mean(weights.grad)
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
