"""A plain loop: DistributedDataParallel, a loader, epochs, an evaluation behind each."""

import sys

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main(epochs: int) -> None:
    rank, world = common.begin()
    x, y = common.samples(96 * world)
    data = TensorDataset(x, y)
    model = common.network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
    sampler = DistributedSampler(data, world, rank, seed=4)
    loader = DataLoader(data, 8, sampler=sampler)
    torch.manual_seed(5 + rank)
    log, best = [], float("inf")
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = 0.0
        for number, (inputs, targets) in enumerate(loader):
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
            log.append(loss.item())
            if rank == 0 and number % 6 == 0:
                print(f"epoch {epoch} batch {number} mean {total / (number + 1):.9g}")
            common.pace()
        model.eval()
        with torch.no_grad():
            value = nn.functional.mse_loss(model(x[rank::world]), y[rank::world])
            dist.all_reduce(value)
        best = min(best, value.item())
        if rank == 0:
            mean = total / (number + 1)
            print(f"epoch {epoch} mean {mean:.9g} best {best:.9g} of {len(log)} {sum(log):.9g}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
