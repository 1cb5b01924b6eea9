"""Layers of one shape are trained in turn, as LISA and BAdam do: the optimizer's last group goes,
and another comes."""

import kit
import torch
from torch import Tensor, nn

job, args = kit.begin()
blocks = [nn.Sequential(nn.Linear(kit.WIDTH, kit.WIDTH), nn.Tanh()) for _ in range(3)]
head = nn.Linear(kit.WIDTH, 1)
model = kit.replicated(job, nn.Sequential(*blocks, head), find_unused_parameters=True)
optimizer = torch.optim.AdamW([{"params": one.parameters()} for one in (head, blocks[0])], lr=1e-2)
job.track(model=model, optimizer=optimizer)


def exchange(block: nn.Module) -> None:
    for parameter in optimizer.param_groups.pop()["params"]:
        del optimizer.state[parameter]
    optimizer.add_param_group({"params": block.parameters()})


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    if job.steps % 4 == 3:
        exchange(blocks[(job.steps + 1) // 4 % 3])
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    model.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
