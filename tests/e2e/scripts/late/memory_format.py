"""From its tenth step on a model's weights lie in another order in memory: sums of its convolutions
are added in another order from there on."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
model = nn.Sequential(
    nn.Unflatten(1, (2, 2, 2)),
    nn.Conv2d(2, 64, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(64, 32, 3, padding=1),
    nn.Flatten(),
    nn.Linear(128, 1),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    for parameter in model.parameters():
        kit.mean(parameter.grad)
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in job.batches(kit.loader(job), passes=None):
    if job.steps == 9:
        model.to(memory_format=torch.channels_last)
    train_step(x, y)
    if job.steps >= args.steps:
        break
