"""Behind each pass another layer is thawed, and given to the optimizer as a group of its own."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
net = kit.network(norm=False)
model = kit.replicated(job, net)
optimizer = torch.optim.SGD(net[3].parameters(), lr=0.1, momentum=0.9)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    optimizer.step()
    model.zero_grad()
    return loss.detach()


epoch = 0
loader = kit.loader(job)
while job.steps < args.steps:
    for x, y in kit.until(job, args, job.batches(loader)):
        train_step(x, y)
    epoch += 1
    if epoch == 1:
        optimizer.add_param_group({"params": list(net[0].parameters()), "lr": 0.01})
kit.say(job, f"groups {len(optimizer.param_groups)}")
