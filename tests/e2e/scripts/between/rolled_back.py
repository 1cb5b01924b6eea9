"""The best checkpoint lies in memory, and training goes back to it where it got worse."""

import csv
import io
from dataclasses import asdict, dataclass, replace

import kit
import torch
from torch import Tensor

job, args = kit.begin()


@dataclass(frozen=True)
class Progress:
    epoch: int = 0
    best: float = 1e9
    bad: int = 0
    rollbacks: int = 0
    rate: float = 0.15


class Run:
    def __init__(self) -> None:
        self.net = kit.network(norm=True, dropout=0.0)
        self.model = kit.replicated(job, self.net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.15, momentum=0.9)
        self.progress, self.checkpoint, self.table = Progress(), io.BytesIO(), io.StringIO()
        self.writer = csv.DictWriter(self.table, list(asdict(self.progress)))
        job.track(model=self.model, optimizer=self.optimizer)

    def save(self) -> None:
        self.checkpoint = io.BytesIO()
        torch.save(
            {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()},
            self.checkpoint,
        )

    def restore(self) -> None:
        self.checkpoint.seek(0)
        state = torch.load(self.checkpoint)
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])

    @job.step
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        self.optimizer.param_groups[0]["lr"] = self.progress.rate
        loss = kit.error(self.model, x, y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    @torch.no_grad()
    def validate(self) -> float:
        self.net.eval()
        error = kit.mean(kit.error(self.net, *kit.dataset(64, seed=16 + job.rank).tensors))
        self.net.train()
        return error.item()

    def epoch_is_over(self, error: float) -> None:
        now = replace(self.progress, epoch=self.progress.epoch + 1, bad=self.progress.bad + 1)
        if error < now.best:
            now = replace(now, best=error, bad=0)
            self.save()
        elif now.bad >= 2:
            self.restore()
            now = replace(now, bad=0, rollbacks=now.rollbacks + 1, rate=now.rate / 2)
        self.progress = now
        self.writer.writerow(asdict(self.progress))


run = Run()
loader = kit.loader(job, kit.dataset(80))
while job.steps < args.steps:
    for x, y in kit.until(job, args, job.batches(loader)):
        run.step(x, y)
        kit.moment(job, args)
    run.epoch_is_over(run.validate())
    kit.say(job, f"{job.steps} {run.table.getvalue().splitlines()[-1]}")
