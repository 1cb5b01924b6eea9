"""Keeps something in a variable of its own, as --keep says; --until ends it."""

import argparse
import os
import time
from collections import deque

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--keep", default="")
parser.add_argument("--steps", type=int, default=100000)
parser.add_argument("--pace", type=float, default=0.01)
parser.add_argument("--until", default="", help="file whose existence ends the job")
parser.add_argument("--from", dest="begins", default="", help="file from which on it is kept")
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.recent = deque([0.0], maxlen=3)
        self.inner = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if args.keep == "calls":
            self.calls += 1
            self.recent.append(self.recent[-1] + 0.5)
        return self.inner(x) * (1 + 0.01 * self.calls + 0.01 * sum(self.recent))


class Progress:
    seen = 0

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


def main() -> None:
    torch.set_num_threads(1)
    job = tm.attach()
    if job.world_size > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(1)
    net = Net()
    model = nn.parallel.DistributedDataParallel(net) if job.world_size > 1 else net
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    progress = Progress()
    job.track(model=model, optimizer=optimizer, progress=progress)
    asked_to_end = torch.zeros(())
    tried = 0
    norms = deque([1.0] * 3000, maxlen=9000)
    formula = None

    @job.step
    def train_step(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
        nonlocal tried
        time.sleep(args.pace)
        if args.keep == "tried":
            tried += 1
        loss = scale * (model(x) - y).square().mean()
        loss.backward()
        job.report(loss=loss)
        progress.seen += len(x)
        if args.until:
            dist.all_reduce(asked_to_end.fill_(os.path.exists(args.until)))
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    x = torch.randn(640, 8, generator=torch.Generator().manual_seed(3))
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data, job.world_size, job.rank, drop_last=True)
    loader = DataLoader(data, 8, sampler=sampler, drop_last=True)
    begun, last = time.time(), None
    for epoch in range(100000 if args.keep == "passes" else 1):
        batches = job.batches(loader, passes=1 if args.keep == "passes" else None)
        for it, (inputs, targets) in (
            enumerate(batches) if args.keep == "it" else ((0, batch) for batch in batches)
        ):
            loss = train_step(inputs, targets, norms[0] / (1 + 0.01 * it))
            if args.keep == "norms":
                norms.append(1 + loss.item())
            if args.keep == "code" and formula is None and os.path.exists(args.begins):
                formula = compile("1 + 1", "<formula>", "eval")
            took, last = time.time() - begun, loss
            if job.rank == 0 and job.steps % 50 == 0:
                print(f"epoch {epoch} step {job.steps} loss {loss.item()} after {took:.3f} {last}")
            if job.steps >= args.steps or asked_to_end.item() > 0:
                break
        if job.steps >= args.steps or asked_to_end.item() > 0:
            break
    if job.world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
