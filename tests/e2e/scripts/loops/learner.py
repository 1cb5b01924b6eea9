"""A learner with callbacks, in short epochs: the newest loss, a warm-up, early stopping, rows."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()


class Callback:
    """Is told of the learner."""

    def batch_is_over(self, learner: "Learner") -> None: ...

    def epoch_is_over(self, learner: "Learner") -> None: ...


class WarmUp(Callback):
    """The rate goes up for twenty batches."""

    def __init__(self) -> None:
        self.made = 0

    def batch_is_over(self, learner: "Learner") -> None:
        self.made += 1
        if self.made <= 20:
            learner.optimizer.param_groups[0]["lr"] = 1e-2 * self.made / 20


class Patience(Callback):
    """The rate goes down where the error does not."""

    def __init__(self) -> None:
        self.best, self.waited = 1e9, 0

    def epoch_is_over(self, learner: "Learner") -> None:
        self.waited = 0 if learner.error < self.best else self.waited + 1
        self.best = min(self.best, learner.error)
        if self.waited:
            learner.optimizer.param_groups[0]["lr"] *= 0.5


class Rows(Callback):
    """All errors."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, float]] = []

    def epoch_is_over(self, learner: "Learner") -> None:
        self.rows.append((learner.epoch, learner.error))


class Learner:
    """Trains, and tells its callbacks."""

    def __init__(self, *callbacks: Callback) -> None:
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.callbacks = callbacks
        self.epoch, self.error = 0, 1e9
        self.loss: Tensor | None = None
        job.track(model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        loss = kit.error(self.model, x, y)
        loss.backward()
        job.report(loss=loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def measured(self) -> float:
        self.model.eval()
        with torch.no_grad():
            x, y = kit.dataset(32, 5).tensors
            error = kit.mean(kit.error(self.model, x, y))
        self.model.train()
        return error.item()

    def fit(self) -> None:
        loader = kit.loader(job)
        for self.epoch in range(100):
            for x, y in job.batches(loader):
                self.loss = self.step(x, y)
                for one in self.callbacks:
                    one.batch_is_over(self)
                if job.steps >= args.steps:
                    return
            self.error = self.measured()
            for one in self.callbacks:
                one.epoch_is_over(self)
            kit.say(job, f"{self.epoch} {self.error} {self.loss}")


Learner(WarmUp(), Patience(), Rows()).fit()
