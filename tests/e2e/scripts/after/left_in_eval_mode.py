"""A step trains in train mode and leaves the model in eval mode, and the error on held-out
data is logged behind each.
"""

import logging

import kit
import torch
from torch import Tensor

log = logging.getLogger("train")
job, args = kit.begin()
net = kit.network(norm=False, dropout=0.3)
model = kit.replicated(job, net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
held_x, held_y = kit.dataset(64, 9).tensors


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    model.train()
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    model.eval()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    with torch.no_grad():
        held_out = kit.error(net, held_x, held_y)
    log.info("held-out error %.4f", held_out)
    kit.moment(job, args)
kit.say(job, f"held-out error {kit.error(net, held_x, held_y).item():.9g}")
