"""Steps of two kinds count: in a dict, in an object, in a variable of the function around them."""

from dataclasses import dataclass

import kit
import torch
from torch import Tensor


@dataclass
class State:
    global_step: int = 0
    odd: int = 0


class Engine:
    def __init__(self, net: torch.nn.Module) -> None:
        self.state = State()
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def main() -> None:
    job, args = kit.begin()
    model = kit.replicated(job, kit.network())
    engine, seen = Engine(model), {"samples": 0, "passes": 0}
    job.track(model=model, optimizer=engine.optimizer)
    budget = 2.0

    def update(x: Tensor, y: Tensor, scale: float) -> None:
        kit.pace(job, args)
        loss = kit.error(model, x, y) * scale
        engine.optimizer.zero_grad()
        loss.backward()
        job.report(loss=loss)
        engine.optimizer.step()

    @job.step
    def even_step(x: Tensor, y: Tensor) -> None:
        engine.state.global_step += 1
        seen["samples"] += 8
        update(x, y, budget)

    @job.step
    def odd_step(x: Tensor, y: Tensor) -> None:
        nonlocal budget
        update(x, y, 0.5)
        engine.state.global_step += 1
        engine.state.odd += 1
        seen["samples"] += 8
        budget -= 0.03125

    loader = kit.loader(job, kit.dataset(112))
    while engine.state.global_step < args.steps:
        loader.sampler.set_epoch(seen["passes"])
        for x, y in kit.until(job, args, job.batches(loader)):
            step = odd_step if engine.state.global_step % 3 == 1 else even_step
            step(x, y)
        seen["passes"] += 1
        kit.say(job, f"{engine.state.global_step} {engine.state.odd} {seen} {budget}")


main()
