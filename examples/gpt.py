# SPDX-License-Identifier: Apache-2.0
"""A byte-level GPT, data parallel. Any of these trains it:
python examples/gpt.py
torchrun --nproc-per-node 2 examples/gpt.py
trainmover run --machines 4 --standbys 1 examples/gpt.py
"""

import argparse
import os
import pydoc_data.topics
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

import trainmover as tm

try:
    from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader
except ImportError:
    from torch.utils.data import DataLoader
warnings.filterwarnings("ignore", "'set_vital'")  # torchdata 0.11 beside torch 2.13


def windows(path: str, context: int) -> Tensor:
    """A file cut into pieces of `context` + 1 bytes, [piece, byte]; neighbours share one byte."""
    text = torch.frombuffer(bytearray(Path(path).read_bytes()), dtype=torch.uint8)
    return text.unfold(0, context + 1, context)


class GPT(nn.Module):
    def __init__(self, dim: int, layers: int, context: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, dim), nn.Embedding(context, dim)
        options = {"dim_feedforward": 4 * dim, "batch_first": True, "norm_first": True}
        block = nn.TransformerEncoderLayer(dim, dim // 32, **options)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place.weight
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(x, mask, is_causal=True)))


class Progress:
    """How many tokens this rank has seen."""

    tokens = 0


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--steps", type=int, default=200, help="optimizer steps")
    add("--batch", type=int, default=8, help="sequences a rank and step")
    add("--context", type=int, default=64, help="bytes a sequence")
    add("--dim", type=int, default=96, help="width, a multiple of 32")
    add("--layers", type=int, default=3, help="transformer blocks")
    add("--device", default="cpu", help="cpu or cuda")
    add("--backend", default="gloo", help="gloo, or nccl for GPUs")
    add("--compile", action="store_true", help="with torch.compile")
    add("--lr", type=float, default=1e-3, help="learning rate at the start")
    add("--data", default=pydoc_data.topics.__file__, help="file to train on")
    add("--log-every", type=int, default=10, help="steps between lines")
    add("--seed", type=int, default=1, help="of weights, data order, dropout")
    return parser.parse_args()


def main() -> None:
    args = flags()
    torch.set_num_threads(1)
    job = tm.attach()
    rank, world = job.rank, job.world_size
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if world > 1:
        dist.init_process_group(args.backend)
    torch.manual_seed(args.seed)  # the same weights on every rank
    gpt = GPT(args.dim, args.layers, args.context).to(args.device)
    gpt = torch.compile(gpt) if args.compile else gpt
    model = nn.parallel.DistributedDataParallel(gpt) if world > 1 else gpt
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    progress = Progress()  # it follows the rank to another machine
    job.track(model=model, optimizer=optimizer, scheduler=scheduler)
    torch.manual_seed(args.seed + 1 + rank)  # another dropout mask on every rank

    @job.step
    def train_step(batch: Tensor) -> Tensor:
        tokens, targets = batch[:, :-1].long(), batch[:, 1:].long()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        job.report(loss=loss)
        progress.tokens += targets.numel()  # before the commit, as everything of this rank alone
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        return loss.detach()

    pieces = windows(args.data, args.context)
    sampler = DistributedSampler(pieces, world, rank, seed=args.seed, drop_last=True)
    loader = DataLoader(pieces, args.batch, sampler=sampler, drop_last=True)
    for batch in job.batches(loader, passes=None):
        loss = train_step(batch.to(args.device))
        if rank == 0 and job.steps % args.log_every == 0:
            print(f"step {job.steps} loss {loss.item():.9g}", flush=True)
        if job.steps >= args.steps:
            break
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
