"""A Trainer keeps one of its attributes, then parts of it keep theirs, some in two calls."""

import kit
from torch import Tensor, nn, optim

job, args = kit.begin()


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.calls = kit.network(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.net(x) * (1 + 0.001 * self.calls)  # type: ignore[no-any-return]


class Mean:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float) -> None:
        self.total, self.count = self.total + value, self.count + 1

    def state_dict(self) -> dict[str, float]:
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.total, self.count = state["total"], int(state["count"])


class Pool:
    def __init__(self) -> None:
        self.count, self.seen = 0, list[float]()


class Trainer:
    def __init__(self) -> None:
        self.mean, self.pool, self.done = Mean(), Pool(), 0
        self.model = kit.replicated(job, Counting())
        self.optimizer = optim.AdamW(self.model.parameters(), lr=1e-2)
        job.track(mean=self.mean, model=self.model, optimizer=self.optimizer)

    @job.step
    def step(self, x: Tensor, y: Tensor) -> None:
        kit.pace(job, args)
        loss = kit.error(self.model, x, y) * (1 + self.mean.total / (1 + 100 * self.mean.count))
        loss.backward()
        job.report(loss=loss)
        self.mean.update(loss.item())
        self.pool.seen.append(loss.item())
        self.pool.count, self.done = self.pool.count + 2, self.done + 1
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fit(self) -> None:
        for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
            self.step(x, y)
            seen = sum(self.pool.seen)
            kit.say(job, f"{self.done} {self.pool.count} {self.mean.total:.9g} {seen:.9g}")


Trainer().fit()
