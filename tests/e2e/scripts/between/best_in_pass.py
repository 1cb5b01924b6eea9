"""Behind each pass the best error so far is kept, and how often there was none better; the rate
follows from it."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network(norm=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)
held_x, held_y = kit.dataset(64, seed=8).tensors
best = float("inf")


class Stopping:
    def __init__(self) -> None:
        self.waited, self.name = 0, "none"

    def step(self, error: float, before: float, data_pass: int) -> None:
        if error < before:
            self.waited, self.name = 0, f"pass {data_pass}"
        else:
            self.waited += 1


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


def held_out() -> float:
    model.eval()
    with torch.no_grad():
        error = kit.error(model.module, held_x, held_y).item()
    model.train()
    return error


def main() -> None:
    global best
    stopping, last = Stopping(), 0.0
    for data_pass in range(1, 100):
        for x, y in kit.until(job, args, job.batches(kit.loader(job, kit.dataset(96)))):
            train_step(x, y)
        error = held_out() - 0.9 * last
        stopping.step(error, best, data_pass)
        if error < best and not job.is_shadow:
            kit.say(job, f"pass {data_pass} is better")
        best, last = min(best, error), error
        optimizer.param_groups[0]["lr"] = 0.05 / (1 + stopping.waited) + best / 100
        kit.say(job, f"{data_pass} {best:.9g} {stopping.waited} {stopping.name}")
        if job.steps >= args.steps:
            break


main()
