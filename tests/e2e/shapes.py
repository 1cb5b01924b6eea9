"""Training loops as people write them, chosen by --shape, for end-to-end tests."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--shape", required=True)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--pace", type=float, default=0.01)
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2))
net.append(nn.Linear(32, 1))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=7)
job.track(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    time.sleep(args.pace)
    model.train()
    if args.shape == "caught" and int(abs(x[0, 0].item()) * 1e5) % 5 == 0:
        raise ValueError("a bad batch")
    loss = (model(x) - y).square().mean()
    (scaler.scale(loss) if args.shape == "scaler" else loss).backward()
    job.report(loss=loss)
    if args.shape == "scaler":
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
    if args.shape != "schedule-outside":
        scheduler.step()
    return loss.detach()


@job.step
def evaluate(x: Tensor, y: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        loss = (model(x) - y).square().mean()
    dist.all_reduce(loss)
    return loss


@job.step
def both(x: Tensor, y: Tensor) -> Tensor:
    evaluate(x, y)
    return train_step(x, y)


def loader(samples: int) -> DataLoader[tuple[Tensor, ...]]:
    x = torch.randn(samples, 16, generator=torch.Generator().manual_seed(3))
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data, job.world_size, job.rank, shuffle=True, drop_last=True)
    return DataLoader(data, 16, sampler=sampler, drop_last=True)


def nested_validation() -> None:
    for x, y in job.batches(loader(2000), passes=None):
        train_step(x, y)
        if job.steps % 10 == 0 or job.steps == 8:
            for held_x, held_y in job.batches(loader(200)):
                evaluate(held_x, held_y)
        if job.steps >= args.steps:
            return


def a_loop_per_pass() -> None:
    for _ in range(args.steps // 10):
        for x, y in job.batches(loader(500)):
            train_step(x, y)
        evaluate(x, y)


def plain() -> None:
    for x, y in job.batches(loader(2000), passes=None):
        if args.shape == "caught":
            try:
                train_step(x, y)
            except ValueError:
                continue
        else:
            both(x, y) if args.shape == "nested-step" else train_step(x, y)
        if args.shape == "schedule-outside":
            scheduler.step()
        if job.steps >= args.steps:
            return


{"nested-validation": nested_validation, "loop-per-pass": a_loop_per_pass}.get(args.shape, plain)()
