"""The rate of dropout follows a mean of the losses; it is set by setters that were made beforehand,
one for each layer.
"""

from functools import partial

import kit
import torch
from torch import Tensor, nn


def main() -> None:
    job, args = kit.begin()
    net = kit.network()
    model = kit.replicated(job, net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.track(model=model, optimizer=optimizer)
    setters = [partial(setattr, one, "p") for one in net if isinstance(one, nn.Dropout)]

    @job.step
    def train_step(x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = kit.error(model, x, y)
        loss.backward()
        job.report(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    level = 1.0
    for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
        loss = train_step(x, y)
        level = 0.8 * level + 0.2 * loss.item()
        if job.steps % 4 == 0:
            for put in setters:
                put(0.1 + 0.5 * level / (1 + level))
    kit.say(job, f"level {level:.9g}")


main()
