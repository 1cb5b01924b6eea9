"""PyTorch's 2-D example: tensor parallel in pairs, FSDP2 between them; gradients never cleared."""

import kit
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

job, args = kit.begin()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
net = nn.Sequential(nn.Linear(kit.WIDTH, 16), nn.ReLU(), nn.Linear(16, 1))
parallelize_module(net, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
model = fully_shard(net, mesh=mesh["data"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
job.track(model=model, optimizer=optimizer)
data_rank = mesh["data"].get_local_rank()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


order = list(range(240))[data_rank::2]
loader = torch.utils.data.DataLoader(kit.dataset(), 8, sampler=order)
for x, y in kit.until(job, args, job.batches(loader, passes=None)):
    train_step(x, y)
