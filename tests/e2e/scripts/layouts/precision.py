"""How exactly products are made is said in torch's new way, and a module is imported later."""

import kit
import torch
from torch import Tensor

torch.backends.fp32_precision = "tf32"
torch.backends.cuda.matmul.fp32_precision = "ieee"

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.track(model=model, optimizer=optimizer)


@job.step
def train_step(x: Tensor, y: Tensor) -> None:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


def announce(text: str) -> None:
    import colorsys  # Nobody else has it loaded.

    kit.say(job, f"{text} {colorsys.ONE_THIRD:.3f}")


def decide(exact: bool) -> None:
    torch.backends.cuda.matmul.fp32_precision = "ieee" if exact else "tf32"


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.steps == 1:
        announce("trained")
    decide(exact=True)
