"""All parameters, and all gradients, are parts of one tensor: the only one that is updated."""

import kit
import torch
import torch.distributed as dist
from torch import Tensor, nn

job, args = kit.begin()
net = kit.network(norm=False)
flat = nn.Parameter(torch.cat([one.detach().flatten() for one in net.parameters()]))
flat.grad = torch.zeros_like(flat)
begin = 0
for one in net.parameters():
    end = begin + one.numel()
    one.data = flat.data[begin:end].view_as(one)
    one.grad = flat.grad[begin:end].view_as(one)
    begin = end
optimizer = torch.optim.AdamW([flat], lr=1e-2)
torch.manual_seed(100 + job.rank)
job.track(net=net, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    flat.grad.zero_()
    loss = kit.error(net, x, y)
    loss.backward()
    dist.all_reduce(flat.grad, dist.ReduceOp.AVG)
    job.report(loss=loss)
    optimizer.step()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
