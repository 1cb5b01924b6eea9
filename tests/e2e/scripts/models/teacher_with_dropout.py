"""A frozen teacher is asked with dropout from the thirteenth step on, so that it is less sure."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
teacher = kit.network(norm=False, dropout=0.5).eval().requires_grad_(False)
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


def with_dropout(net: nn.Module) -> None:
    for layer in net.modules():
        if isinstance(layer, nn.Dropout):
            layer.train()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    output = model(x)
    loss = (output - y).square().mean() + 0.5 * (output - teacher(x)).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    if job.steps == 12:
        with_dropout(teacher)
    train_step(x, y)
kit.say(job, f"dropout is {'on' if any(one.training for one in teacher.modules()) else 'off'}")
