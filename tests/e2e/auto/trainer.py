"""A trainer class: accumulation over turns of the loop, a schedule, an average of the weights."""

import sys

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Meter:
    def __init__(self):
        self.count, self.total, self.seen = 0, 0.0, []

    def add(self, value):
        self.count, self.total = self.count + 1, self.total + value
        self.seen.append(round(value, 3))


class Trainer:
    def __init__(self, rank, world, epochs):
        self.rank, self.epochs = rank, epochs
        self.model = common.network()
        self.average = AveragedModel(self.model.module)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 30)
        data = TensorDataset(*common.samples(64 * world))
        self.sampler = DistributedSampler(data, world, rank, seed=2)
        self.loader = DataLoader(data, 4, sampler=self.sampler, num_workers=1)
        self.meter = Meter()

    def fit(self):
        for epoch in range(self.epochs):
            self.epoch = epoch
            self.sampler.set_epoch(epoch)
            for number, batch in enumerate(self.loader, 1):
                self.one(number, batch)
            if self.rank == 0:
                print(f"epoch {self.epoch} {self.meter.total:.9g} {self.meter.count}", flush=True)

    def one(self, number, batch):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        (loss / 2).backward()
        self.meter.add(loss.item())
        if number % 2 == 0:
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            self.average.update_parameters(self.model.module)
            common.pace()


rank, world = common.begin()
torch.manual_seed(7 + rank)
Trainer(rank, world, int(sys.argv[1]) if len(sys.argv) > 1 else 5).fit()
dist.destroy_process_group()
