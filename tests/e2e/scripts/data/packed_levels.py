"""How sure each target is comes along in a packed stream, read on batch by batch."""

import gzip
import io

import kit
import numpy as np
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)

PACKED = gzip.compress(bytes(17 * n % 251 for n in range(4096)))
stream = gzip.GzipFile(fileobj=io.BytesIO(PACKED))


def next_levels(many: int) -> Tensor:
    levels = np.frombuffer(stream.read(many), np.uint8) / 255 + 0.1
    return torch.from_numpy(levels).float()[:, None]


@job.step
def train_step(x: Tensor, y: Tensor, sure: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = (sure * (model(x) - y).square()).mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y, next_levels(len(x)))
    kit.moment(job, args)
