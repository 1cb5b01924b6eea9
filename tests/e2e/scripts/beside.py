"""State that no state_dict has: of a communication hook, or in buffers that are not persistent."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.utils.data import DataLoader, TensorDataset

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--habit", required=True, choices=["powersgd", "feedback", "buffer"])
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--hurry", default="", help="file whose existence ends the pacing")
args = parser.parse_args()


class Counted(nn.Module):
    """Its output depends on how often it was called, and on what it was given before."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.register_buffer("calls", torch.zeros(()), persistent=False)
        self.register_buffer("mean", torch.zeros(8), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            self.calls += 1
            self.mean.lerp_(inputs.mean(0), 0.1)
        if args.habit != "buffer":
            return self.inner(inputs)
        return self.inner(inputs - self.mean) * (1 + 0.1 * torch.sin(self.calls))


class Feedback:
    """What rounding has taken from gradients, to be added the next time; and noise of its own."""

    def __init__(self) -> None:
        self.errors: dict[int, Tensor] = {}
        self.noise = torch.Generator().manual_seed(job.rank)


def rounded(state: Feedback, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    gradient = bucket.buffer()
    gradient += state.errors.get(bucket.index(), 0.0)
    dither = torch.rand(gradient.shape, generator=state.noise) - 0.5
    coarse = ((gradient * 64 + dither).round() / 64) / job.world_size
    state.errors[bucket.index()] = gradient - coarse * job.world_size
    work = dist.all_reduce(coarse, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
net = Counted()
model = nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
if args.habit == "powersgd":
    options = {"start_powerSGD_iter": 4, "min_compression_rate": 1}
    hook_state = powerSGD_hook.PowerSGDState(None, **options)
    model.register_comm_hook(hook_state, powerSGD_hook.powerSGD_hook)
elif args.habit == "feedback":
    model.register_comm_hook(Feedback(), rounded)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
job.track(model=net, optimizer=optimizer)
torch.manual_seed(100 + job.rank)

rows = torch.randn(4000, 8, generator=torch.Generator().manual_seed(3))
data = TensorDataset(rows, rows.sum(1, keepdim=True))


@job.step
def train_step(inputs: Tensor, targets: Tensor) -> None:
    if args.pace and not (args.hurry and os.path.exists(args.hurry)):
        time.sleep(args.pace)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()


for inputs, targets in job.batches(DataLoader(data, 16, shuffle=True), passes=None):
    train_step(inputs, targets)
    if job.steps >= args.steps:
        break
