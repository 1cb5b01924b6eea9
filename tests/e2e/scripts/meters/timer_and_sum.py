"""d2l's Timer (with sum and avg) in the file; the trainer's level is made of losses.sum()."""

import time

import kit
import numpy as np
import torch

job, args = kit.begin()


class Timer:
    """Record multiple running times."""

    def __init__(self):
        self.times = []
        self.start()

    def start(self):
        self.tik = time.time()

    def stop(self):
        self.times.append(time.time() - self.tik)
        return self.times[-1]

    def avg(self):
        return sum(self.times) / len(self.times)

    def sum(self):
        return sum(self.times)

    def cumsum(self):
        return np.array(self.times).cumsum().tolist()


class HardExampleWeights:
    def __init__(self):
        self.level = 1.0

    def __call__(self, losses):
        self.level = 0.9 * self.level + 0.1 * losses.sum().item()
        return losses / (0.1 + self.level)


model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
weighted, timer = HardExampleWeights(), Timer()


@job.step
def train_step(x, y):
    kit.pace(job, args)
    losses = (model(x) - y).square()
    loss = (losses * weighted(losses.detach())).mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    timer.start()
    train_step(x, y)
    timer.stop()
