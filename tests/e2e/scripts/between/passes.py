"""Between two passes a scheduler goes on, weights are averaged, another loader is drawn from."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
net = kit.network(norm=False)
model = kit.replicated(job, net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
averaged = torch.optim.swa_utils.AveragedModel(net)
job.track(model=model, optimizer=optimizer, scheduler=scheduler, averaged=averaged)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y) + averaged.n_averaged * 0.01
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


data, others = kit.loader(job), kit.loader(job, kit.dataset(32, seed=5))
while job.steps < args.steps:
    for x, y in kit.until(job, args, job.batches(data)):
        train_step(x, y)
    kit.moment(job, args)
    scheduler.step()
    averaged.update_parameters(net)
    with torch.no_grad():
        for x, _ in job.batches(others):
            averaged(x)
kit.say(job, f"lr {optimizer.param_groups[0]['lr']}")
