"""One object notes norms of gradients, another clips by their median: both are tracked, and have
one list from the start.
"""

import statistics
from typing import Any

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class OfNorms:
    def __init__(self, norms: list[float]) -> None:
        self.norms = norms

    def state_dict(self) -> dict[str, Any]:
        return {"norms": self.norms}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.norms = state["norms"]


class Notes(OfNorms):
    def add(self, norm: float) -> None:
        self.norms.append(norm)
        if len(self.norms) > 9:
            self.norms.pop(0)


class Clipper(OfNorms):
    def limit(self) -> float:
        return 0.5 * statistics.median(self.norms) if self.norms else 1.0


def of_one_list() -> tuple[Notes, Clipper]:
    norms: list[float] = []
    return Notes(norms), Clipper(norms)


model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
notes, clipper = of_one_list()
job.track(model=model, optimizer=optimizer, notes=notes, clipper=clipper)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    notes.add(torch.nn.utils.clip_grad_norm_(model.parameters(), clipper.limit()).item())
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
kit.say(job, f"limit {clipper.limit():.9g}")
