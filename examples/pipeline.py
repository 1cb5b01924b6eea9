# SPDX-License-Identifier: Apache-2.0
"""A pipeline: each rank holds one stage of the model; four micro-batches are on their way at once.
torchrun --nproc-per-node 2 examples/pipeline.py
trainmover run --machines 2 --standbys 1 examples/pipeline.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils.data import DataLoader, TensorDataset

import trainmover as tm

WIDTH = 32


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps")
    parser.add_argument("--log-every", type=int, default=10, help="steps between lines")
    return parser.parse_args()


def layers(number: int) -> nn.Module:
    """Those of one stage."""
    torch.manual_seed(1 + number)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, WIDTH))


def main() -> None:
    args = flags()
    torch.set_num_threads(1)
    job = tm.attach()
    dist.init_process_group("gloo")
    number, stages = job.rank, job.world_size
    last = number == stages - 1
    part = layers(number)  # this rank's only
    stage = PipelineStage(part, number, stages, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    job.track(model=part, optimizer=optimizer)
    torch.manual_seed(100 + job.rank)

    @job.step
    def train_step(x: Tensor, y: Tensor) -> Tensor:
        losses: list[Tensor] = []
        if number == 0:
            schedule.step(x)
        elif last:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        loss = torch.stack(losses).mean().detach() if last else torch.zeros(())
        dist.broadcast(loss, src=stages - 1)  # before the update: all ranks report it
        job.report(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    x = torch.randn(4096, WIDTH, generator=torch.Generator().manual_seed(2))
    data = TensorDataset(x, x.cumsum(1).sin())
    loader = DataLoader(data, 16, drop_last=True)  # every stage draws the same
    for x, y in job.batches(loader, passes=None):
        loss = train_step(x, y)
        if job.rank == 0 and job.steps % args.log_every == 0:
            print(f"step {job.steps} loss {loss.item():.9g}", flush=True)
        if job.steps >= args.steps:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
