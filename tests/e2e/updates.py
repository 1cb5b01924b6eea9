"""Steps whose update is more than one local optimizer.step(), chosen by --what."""

import argparse
import time
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--what", required=True)
parser.add_argument("--apart", action="store_true", help="each part has steps of its own")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pace", type=float, default=0.0)
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1),
                         nn.Linear(24, outputs))  # fmt: skip


class Zero:
    """Shards within a machine; the update broadcasts parameters, the clipping needs a norm."""

    def __init__(self) -> None:
        self.model = DistributedDataParallel(mlp(16, 1))
        pair, _ = dist.new_subgroups(2)
        self.optimizer = ZeroRedundancyOptimizer(
            self.model.parameters(), torch.optim.AdamW, process_group=pair, lr=1e-3
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 30)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        job.track(zero=self.model, zero_optimizer=self.optimizer, zero_schedule=self.schedule)
        job.track(average=self.average)

    def step(self, x: Tensor) -> Tensor:
        self.schedule.step()
        loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.average.update_parameters(self.model)
        return loss.detach()


class Gan:
    """Two updates, and collectives between them."""

    def __init__(self) -> None:
        self.maker = DistributedDataParallel(mlp(16, 16))
        self.judge = DistributedDataParallel(mlp(16, 1), broadcast_buffers=False)
        self.maker_optimizer = torch.optim.Adam(self.maker.parameters(), lr=1e-3)
        self.judge_optimizer = torch.optim.SGD(self.judge.parameters(), lr=1e-2, momentum=0.9)
        job.track(maker=self.maker, maker_optimizer=self.maker_optimizer)
        job.track(judge=self.judge, judge_optimizer=self.judge_optimizer)

    def step(self, x: Tensor) -> Tensor:
        made = self.maker(torch.randn_like(x))
        self.judge_optimizer.zero_grad()
        judged = self.judge(torch.cat([x, made.detach()]))
        judge_loss = nn.functional.softplus(judged * torch.ones(len(x) * 2, 1).index_fill_(
            0, torch.arange(len(x)), -1.0)).mean()  # fmt: skip
        judge_loss.backward()
        self.judge_optimizer.step()
        self.maker_optimizer.zero_grad()
        maker_loss = nn.functional.softplus(-self.judge(made)).mean()
        maker_loss.backward()
        self.maker_optimizer.step()
        return judge_loss.detach() + maker_loss.detach()


class Closure:
    """Several passes, with their collectives, inside one optimizer.step()."""

    search: str | None = None

    def __init__(self) -> None:
        self.model = nn.Linear(16, 1)
        self.optimizer = torch.optim.LBFGS(
            self.model.parameters(),
            lr=0.1,
            max_iter=3,
            line_search_fn=self.search,
            history_size=4,
            tolerance_grad=0.0,
            tolerance_change=0.0,
        )
        job.track(closure=self.model, closure_optimizer=self.optimizer)

    def step(self, x: Tensor) -> Tensor:
        def evaluated() -> Tensor:
            self.optimizer.zero_grad()
            loss = (self.model(x) - x.cumsum(1).mean(1, keepdim=True)).square().mean()
            loss.backward()
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
            total = loss.detach()
            dist.all_reduce(total, dist.ReduceOp.AVG)
            return total

        loss: Tensor = self.optimizer.step(evaluated)
        return loss


class Search(Closure):
    """As many passes as a line search takes: another number in other steps."""

    search = "strong_wolfe"


class Across:
    """An update in every third step; each rank accumulates for itself until then."""

    def __init__(self) -> None:
        self.model = DistributedDataParallel(nn.Linear(16, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        job.track(across=self.model, across_optimizer=self.optimizer)

    def step(self, x: Tensor) -> Tensor:
        last = job.steps % 3 == 2
        with nullcontext() if last else self.without_sync():
            loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
            (loss / 3).backward()
        job.report(**{type(self).__name__.lower(): loss})
        if last:
            clip_grad_norm_(self.model.parameters(), 2.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()

    def without_sync(self) -> Any:
        return self.model.no_sync()


class Unsharded(Across):
    """The same with FSDP2, which keeps the gradients to itself; every rank has all shards."""

    def __init__(self) -> None:
        mesh = init_device_mesh("cpu", (job.world_size, 1), mesh_dim_names=("replica", "shard"))
        low = MixedPrecisionPolicy(reduce_dtype=torch.float64)
        self.model = fully_shard(nn.Linear(16, 1), mesh=mesh, mp_policy=low)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        job.track(unsharded=self.model, unsharded_optimizer=self.optimizer)

    def without_sync(self) -> Any:
        self.model.set_requires_gradient_sync(False)
        stack = ExitStack()
        stack.callback(self.model.set_requires_gradient_sync, True)
        return stack


class Thaw:
    """Its body is frozen until step 20, and its optimizer does not know it till then."""

    def __init__(self) -> None:
        self.body, self.head = nn.Linear(16, 8), nn.Linear(8, 1)
        self.body.requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.head.parameters(), lr=1e-2)
        job.track(body=self.body, head=self.head, thaw_optimizer=self.optimizer)

    def step(self, x: Tensor) -> Tensor:
        if job.steps >= 20 and len(self.optimizer.param_groups) == 1:
            self.body.requires_grad_(True)
            self.optimizer.add_param_group({"params": self.body.parameters(), "lr": 1e-3})
        loss = (self.head(self.body(x)) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        job.report(thaw=loss)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        return loss.detach()


class Scaled:
    """So large a scale that every few steps gradients overflow and the update is left out; passes
    of one update in one function; an average of the weights."""

    def __init__(self) -> None:
        self.model = DistributedDataParallel(mlp(16, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1e38, growth_interval=4)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        job.track(scaled=self.model, scaled_optimizer=self.optimizer, scaler=self.scaler)
        job.track(scaled_average=self.average)

    def step(self, x: Tensor) -> Tensor:
        total = torch.zeros(())
        for part in x.chunk(2):
            with nullcontext() if total else self.model.no_sync():
                loss = (self.model(part) - part.sum(1, keepdim=True)).square().mean() / 2
                self.scaler.scale(loss).backward()
            total += loss.detach()
        job.report(scaled=total)
        self.scaler.unscale_(self.optimizer)
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.average.update_parameters(self.model)
        return total


KINDS = {
    "zero": Zero,
    "gan": Gan,
    "closure": Closure,
    "search": Search,
    "across": Across,
    "unsharded": Unsharded,
    "thaw": Thaw,
    "scaled": Scaled,
}
parts = [KINDS[name]() for name in args.what.split(",")]
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor) -> Tensor:
    time.sleep(args.pace)
    losses = [part.step(x) for part in parts]
    return torch.stack(losses).sum()


@job.step
def step_of(part: Any, x: Tensor) -> Tensor:
    time.sleep(args.pace)
    return part.step(x)


x = torch.randn(2000, 16, generator=torch.Generator().manual_seed(3))
data = TensorDataset(x)
sampler = DistributedSampler(data, job.world_size, job.rank, shuffle=True, drop_last=True)
for (batch,) in job.batches(DataLoader(data, 16, sampler=sampler, drop_last=True), passes=None):
    if args.apart:
        for part in parts:
            step_of(part, batch)
    else:
        train_step(batch)
    if job.steps >= args.steps:
        break
