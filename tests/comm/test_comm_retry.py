"""A step that is broken off anywhere and tried again gives the same bits, in every layout."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live
from torch import nn

from trainmover.comm import Drained, groups
from trainmover.comm.shim import ShimGroup

STEPS, WARM, SIZE = 9, 3, 4
Forward = Callable[[torch.Tensor], torch.Tensor]


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *[m for _ in range(4) for m in (nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))]
    )


def mean_square(model: nn.Module) -> Forward:
    return lambda x: model(x).pow(2).mean()


def data_parallel(rank: int) -> tuple[nn.Module, Forward]:
    model = nn.parallel.DistributedDataParallel(layers(), bucket_cap_mb=0.005)
    return model, mean_square(model)


def fully_sharded(rank: int) -> tuple[nn.Module, Forward]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = layers()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    for layer in [*list(model)[::3], model]:
        fully_shard(layer, mesh=mesh)
    return model, mean_square(model)


def tensor_parallel(rank: int) -> tuple[nn.Module, Forward]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model = layers()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    plan: dict[str, Any] = {str(i): ColwiseParallel() for i in range(0, 12, 3)}
    plan |= {str(i + 2): RowwiseParallel() for i in range(0, 12, 3)}
    parallelize_module(model, mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["data"])
    return model, mean_square(model)


def pipeline(rank: int) -> tuple[nn.Module, Forward]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    part = nn.Sequential(*list(layers())[rank * 3 : rank * 3 + 3])
    stage = PipelineStage(part, rank, SIZE, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda out, target: (out - target).pow(2).mean())

    def run(x: torch.Tensor) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        given = {"target": torch.zeros_like(x), "losses": losses} if rank == SIZE - 1 else {}
        schedule.step(*([x] if rank == 0 else []), **given)
        return torch.stack(losses).mean() if losses else torch.zeros((), requires_grad=True) + 0

    return part, run


class Exchange(torch.autograd.Function):
    """Rows to their ranks, and their gradients back."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, given: list[int], got: list[int]) -> torch.Tensor:
        ctx.given, ctx.got = given, got
        received = rows.new_empty(sum(got), 16)
        dist.all_to_all_single(received, rows.contiguous(), got, given)
        return received

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        returned = gradients[0].new_empty(sum(ctx.given), 16)
        dist.all_to_all_single(returned, gradients[0].contiguous(), ctx.given, ctx.got)
        return returned, None, None


def experts(rank: int) -> tuple[nn.Module, Forward]:
    model, choice = layers(), nn.Linear(16, SIZE, bias=False)

    def run(x: torch.Tensor) -> torch.Tensor:
        order = choice(x).argmax(1).argsort(stable=True)
        given = choice(x).argmax(1).bincount(minlength=SIZE)
        got = torch.full((SIZE,), 7 << 60)  # What lies in memory that is not yet written.
        dist.all_to_all_single(got, given)
        there = Exchange.apply(x[order], given.tolist(), got.tolist())
        back = Exchange.apply(model(there), got.tolist(), given.tolist())
        return back.pow(2).mean()

    return model, run


LAYOUTS = {
    f.__name__: f for f in (data_parallel, fully_sharded, tensor_parallel, pipeline, experts)
}


class Fault:
    """Counts the calls of this rank's groups and drains at the chosen one."""

    def __init__(self) -> None:
        self.calls, self.at = 0, -1
        stock = ShimGroup.__dict__

        for op in (
            "allreduce",
            "broadcast",
            "all_gather_single",
            "_allgather_base",
            "alltoall_base",
            "all_to_all_single",
            "send",
            "recv",
        ):
            if op in stock:
                setattr(ShimGroup, op, self.counting(stock[op]))

    def counting(self, method: Any) -> Any:
        def counted(group: ShimGroup, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                groups.drain("fault")
            return method(group, *args, **kwargs)

        return counted


def listen(store: dist.Store) -> None:
    """Drain once anybody has: a lost peer's end does not reach everybody by itself on gloo."""
    while True:
        epoch = groups.epoch
        if store.check([f"over/{epoch}"]):
            groups.drain("told", epoch=epoch + 1)
        time.sleep(0.002)


def verdict(rank: int, store: dist.Store, step: int) -> int:
    """The step that all go on with, in the next epoch, as a controller would say it.

    Some rank may have passed a gate that failed for another: then all had computed that step.
    """
    epoch = groups.epoch
    store.set(f"over/{epoch}", "")
    store.set(f"stood/{epoch}/{rank}", str(step))
    stood = [int(store.get(f"stood/{epoch}/{other}")) for other in range(SIZE)]
    groups.drain("over", epoch=epoch + 1)
    groups.switchover(epoch + 1, store)
    return max(stood)


def train(rank: int, ranks: Ranks, layout: str) -> tuple[list[float], list[float], int]:
    store = join_live(rank, ranks)
    threading.Thread(target=listen, args=(ranks.connect(),), daemon=True).start()
    gate = groups.private("gate", rank, SIZE)
    fault = Fault()
    model, forward = LAYOUTS[layout](rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = [p.detach().clone() for p in model.parameters()]

    def run(faulty: bool) -> tuple[list[float], int]:
        for parameter, value in zip(model.parameters(), start, strict=True):
            parameter.data.copy_(value)
        optimizer.state.clear()
        losses: list[float] = []
        retries = step = 0
        while step < STEPS:
            torch.manual_seed(1000 + step * SIZE + rank)
            x, before = torch.randn(8, 16), fault.calls
            if faulty and step >= WARM and rank == step % SIZE and retries < step - WARM + 1:
                fault.at = before + 1 + (step * 5) % max(1, fault.per_step)
            loss = forward(x)
            if layout != "pipeline":
                loss.backward()
            ok = torch.ones(1)
            try:
                gate.all_reduce(ok)
            except Drained:
                retries += 1
                if verdict(rank, store, step) == step:
                    optimizer.zero_grad()
                    continue
            fault.at, fault.per_step = -1, fault.calls - before
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
            step += 1
        return losses, retries

    run(faulty=False)
    quiet, _ = run(faulty=False)
    disturbed, retries = run(faulty=True)
    return quiet, disturbed, retries


@pytest.mark.turns(8)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_that_is_tried_again_gives_the_same_bits(ranks: Ranks, layout: str) -> None:
    for quiet, disturbed, retries in ranks.run(train, layout):
        assert disturbed == quiet
        assert retries == STEPS - WARM
