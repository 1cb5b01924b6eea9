"""A mixture of experts: tokens travel to their expert in pairs of ranks, pairs are replicas."""

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, optimizer_for, pause, train
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import trainmover as tm

args = flags()
job = tm.attach()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "expert"))
pair, replicas = mesh["expert"].get_group(), mesh["replica"].get_group()
torch.manual_seed(1)
router, head = nn.Linear(WIDTH, 2), nn.Linear(WIDTH, WIDTH)
torch.manual_seed(10 + mesh["expert"].get_local_rank())
expert = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
model = nn.ModuleDict({"router": router, "head": head, "expert": expert})
optimizer = optimizer_for(args, model.parameters())
job.track(model=model, optimizer=optimizer)
torch.manual_seed(100 + job.rank)


class Exchange(torch.autograd.Function):
    """Rows to their ranks, gradients back; how many differs from rank to rank and step to step."""

    @staticmethod
    def forward(ctx, rows: Tensor, given: list[int], got: list[int]) -> Tensor:
        ctx.given, ctx.got = given, got
        received = rows.new_empty(sum(got), WIDTH)
        dist.all_to_all_single(received, rows.contiguous(), got, given, group=pair)
        return received

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        returned = gradient.new_empty(sum(ctx.given), WIDTH)
        dist.all_to_all_single(returned, gradient.contiguous(), ctx.given, ctx.got, group=pair)
        return returned, None, None


def mixture(x: Tensor) -> Tensor:
    weight, chosen = router(x + 0.1 * torch.randn_like(x)).softmax(1).max(1)
    order = chosen.argsort(stable=True)
    given, got = chosen.bincount(minlength=2), torch.empty(2, dtype=torch.int64)
    dist.all_to_all_single(got, given, group=pair)
    there = Exchange.apply(x[order], given.tolist(), got.tolist())
    back = Exchange.apply(expert(there), got.tolist(), given.tolist())
    return head(x + weight[:, None] * back[order.argsort()])


def average() -> None:
    for module, group in ((router, None), (head, None), (expert, replicas)):
        for parameter in module.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, group=group)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    pause(job, args)
    loss = (mixture(x) - y).square().mean()
    pause(job, args)
    loss.backward()
    average()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


train(job, args, batches(job, job.rank, job.world_size), train_step)
