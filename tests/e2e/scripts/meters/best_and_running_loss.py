"""The best loss so far and its step are kept in a dict; a running loss beside them weighs the
steps.
"""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Progress:
    def __init__(self) -> None:
        self.best = {"loss": 1e9, "step": 0}
        self.loss = 1.0

    def note(self, loss: float) -> None:
        self.loss = 0.9 * self.loss + 0.1 * loss
        if loss < self.best["loss"]:
            self.best["loss"], self.best["step"] = loss, job.steps


progress = Progress()


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    mean = kit.mean(loss.detach().clone()).item()
    (loss * progress.loss / (progress.loss + mean)).backward()
    progress.note(mean)
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    kit.moment(job, args)
kit.say(job, f"best {progress.best['loss']:.9g}, running {progress.loss:.12g}")
