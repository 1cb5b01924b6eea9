"""A function whose loop sums losses up, counts samples, and scales batches by what it has."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


def main() -> None:
    smooth, lowest = 0.0, float("inf")
    for epoch in range(9):
        total, samples, worse = 0.0, 0, 0
        for x, y in job.batches(kit.loader(job)):
            loss = train_step(x * (1 + smooth / 100), y)
            total += loss.item() * x.size(0)
            samples += x.size(0)
            smooth = 0.9 * smooth + 0.1 * float(loss)
            if loss.item() < lowest:
                lowest = loss.item()
            else:
                worse += 1
            if job.steps >= args.steps:
                break
        kit.say(job, f"pass {epoch}: {total / samples:.9g}, {lowest:.9g}, {worse} worse")
        if job.steps >= args.steps:
            return


main()
