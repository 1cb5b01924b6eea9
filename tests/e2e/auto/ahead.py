"""As Accelerate loads: a generator is one batch ahead; an update is made of two batches.

Behind each update there is a collective, in which a loss is heard of in the same turn.
"""

import sys
from collections.abc import Iterator
from contextlib import nullcontext

import common
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def ahead(loader: "DataLoader[list[Tensor]]") -> Iterator[tuple[bool, list[Tensor]]]:
    """Each batch, and whether it is the last one."""
    batches = iter(loader)
    current = next(batches)
    while True:
        try:
            following = next(batches)
        except StopIteration:
            yield True, current
            return
        yield False, current
        current = following


def main(epochs: int) -> None:
    rank, world = common.begin()
    data = TensorDataset(*common.samples(96 * world))
    model = common.network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sampler = DistributedSampler(data, world, rank, seed=4)
    loader = DataLoader(data, 8, sampler=sampler)
    torch.manual_seed(5 + rank)
    count = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for is_last, (inputs, targets) in ahead(loader):
            count += 1
            updates = count % 2 == 0 or is_last
            with nullcontext() if updates else model.no_sync():
                loss = nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
            if updates:
                optimizer.step()
                optimizer.zero_grad()
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                if rank == 0:
                    print(f"batch {count} {inputs.sum():.9g} loss {mean.item():.9g}", flush=True)
            common.pace()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
