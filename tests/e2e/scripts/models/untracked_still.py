"""A frozen teacher, a loss with weights and a hook that keep nothing: nobody tracks them."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)
teacher = kit.network(norm=False).eval().requires_grad_(False)
criterion = nn.HuberLoss()
teacher[0].register_forward_hook(lambda module, inputs, output: output.tanh())


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = criterion(model(x), y + 0.1 * teacher(x).detach())
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
