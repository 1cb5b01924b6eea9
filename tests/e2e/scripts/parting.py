"""Ranks that train alike for a while, and from step --alone on each for itself: --habit says how.

local    nobody averages gradients any more
average  rank 0 alone begins an average of weights
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--habit", default="local", choices=["local", "average"])
parser.add_argument("--alone", type=int, default=14)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--hurry", default="", help="file whose existence ends the pacing")
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


class Average:
    """As scripts write it."""

    def __init__(self) -> None:
        self.shadow = {k: torch.cat([v] * 8).clone() for k, v in model.state_dict().items()}

    def update(self) -> None:
        for name, value in model.state_dict().items():
            self.shadow[name].mul_(0.9).add_(torch.cat([value] * 8), alpha=0.1)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.shadow

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for name, value in state.items():
            self.shadow[name].copy_(value)


average = Average()
job.track(model=model, optimizer=optimizer, average=average)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(rows: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = (model(rows) - rows.sum(1, keepdim=True)).square().mean()
    loss.backward()
    apart = args.habit == "local" and job.steps >= args.alone
    for parameter in model.parameters() if not apart else ():
        dist.all_reduce(parameter.grad)
        parameter.grad /= job.world_size
    mean = average.shadow["4.bias"].mean()
    job.report(loss=loss, mean=mean)
    optimizer.step()
    return loss


for _ in job.batches(range(args.steps)):
    train_step(torch.randn(16, 8))
    if args.habit == "average" and job.rank == 0 and job.steps > args.alone:
        average.update()
    if args.pace and not (args.hurry and os.path.exists(args.hurry)):
        time.sleep(args.pace)
dist.destroy_process_group()
