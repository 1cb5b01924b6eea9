"""Two networks that train against each other, `next` from an iterator that is begun anew."""

import sys

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank, world = common.begin()
data = TensorDataset(*common.samples(64 * world))
sampler = DistributedSampler(data, world, rank, seed=2)
loader = DataLoader(data, 8, sampler=sampler)
maker = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)))
judge = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
maker_optimizer = torch.optim.Adam(maker.parameters(), lr=1e-3)
judge_optimizer = torch.optim.Adam(judge.parameters(), lr=1e-3)
torch.manual_seed(7 + rank)
history = {"judge": [], "maker": []}
epoch, batches = 0, iter(loader)
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
    try:
        real, _ = next(batches)
    except StopIteration:
        epoch += 1
        sampler.set_epoch(epoch)
        batches = iter(loader)
        real, _ = next(batches)
    made = maker(torch.randn(len(real), 4))
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    wrong = nn.functional.binary_cross_entropy_with_logits
    loss = wrong(judge(torch.cat([real, made.detach()])), torch.cat([ones, zeros]))
    judge_optimizer.zero_grad()
    loss.backward()
    judge_optimizer.step()
    history["judge"].append(loss.item())
    fooled = wrong(judge(made), ones)
    maker_optimizer.zero_grad()
    fooled.backward()
    maker_optimizer.step()
    history["maker"].append(fooled.item())
    common.pace()
    if rank == 0 and step % 10 == 0:
        print(f"step {step} epoch {epoch} {sum(history['judge']):.9g} {sum(history['maker']):.9g}")
dist.destroy_process_group()
