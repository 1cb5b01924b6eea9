# SPDX-License-Identifier: Apache-2.0
"""The worker of the torchrun arm: examples/gpt.py's model under DDP, as one writes it to survive
with torchrun alone: a distributed checkpoint every few steps, and a planned stop that saves first.

Every completed step is a line in BENCH_DIR, with the wall clock that the parent reads too.
"""

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

from bench.torchrun_arm import CHECKPOINT_EVERY
from examples.gpt import GPT, flags, windows
from trainmover.lifeline import die_with

die_with(os.getppid())  # torchrun's agent leaves its workers behind if it is killed.
HERE = Path(os.environ["BENCH_DIR"])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Saved:
    """Model, optimizer, scheduler and step, in torch.distributed.checkpoint's format."""

    def __init__(self, model: Any, optimizer: Any, scheduler: Any, device: str) -> None:
        self.model, self.optimizer, self.scheduler, self.step = model, optimizer, scheduler, 0
        self.device = device

    def state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "scheduler": self.scheduler.state_dict()}

    def load_newest(self) -> None:
        newest = HERE / "newest"
        if not newest.exists():
            return
        self.step = int(newest.read_text())
        state = self.state()
        dcp.load(state, checkpoint_id=HERE / f"checkpoint-{self.step}")
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.scheduler.load_state_dict(state["scheduler"])

    def save(self) -> None:
        dcp.save(self.state(), checkpoint_id=HERE / f"checkpoint-{self.step}")
        if RANK == 0:
            (HERE / "newest.part").write_text(str(self.step))
            (HERE / "newest.part").replace(HERE / "newest")


def drained(saved: Saved) -> None:
    """The planned stop: everybody saves at the same step, then the drained worker leaves."""
    asked = torch.tensor([float((HERE / "drain").exists())], device=saved.device)
    dist.all_reduce(asked, dist.ReduceOp.MAX)
    if not asked.item():
        return
    saved.save()
    dist.barrier()
    if RANK == WORLD // 2:
        (HERE / "drain").unlink()
        os._exit(1)


def main() -> None:
    args = flags()
    torch.set_num_threads(1)
    if args.device == "cuda":  # All ranks share one, and pass for hosts: see bench.gpu.
        os.environ["NCCL_HOSTID"] = f"one-gpu-{os.getpid()}"
        torch.cuda.set_device(0)
    dist.init_process_group(args.backend)
    torch.manual_seed(args.seed)
    gpt = GPT(args.dim, args.layers, args.context).to(args.device)
    if args.compile:
        gpt.compile()
    model = DistributedDataParallel(gpt)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    saved = Saved(model, optimizer, scheduler, args.device)
    saved.load_newest()
    pieces = windows(args.data, args.context)
    torch.manual_seed(args.seed + 1 + RANK)

    def train_step(batch: Tensor) -> None:
        tokens, targets = batch[:, :-1].long(), batch[:, 1:].long()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()

    with (HERE / f"steps.{RANK}.{os.getpid()}").open("a", buffering=1) as marks:
        while saved.step < args.steps:
            first = (saved.step * WORLD + RANK) * args.batch % (len(pieces) - args.batch)
            train_step(pieces[first : first + args.batch].to(args.device))
            saved.step += 1
            marks.write(f"{RANK} {saved.step} {time.time_ns() // 1000}\n")
            if saved.step % CHECKPOINT_EVERY == 0:
                saved.save()
            drained(saved)


if __name__ == "__main__":
    main()
