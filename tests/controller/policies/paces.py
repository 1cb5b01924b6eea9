"""Own times of ranks, told step by step, for tests of what is made of them."""

import random
from collections.abc import Callable
from dataclasses import replace as changed

import msgspec
from jobs import committed, running

from trainmover.controller import Job, decide
from trainmover.controller.effects import Effect
from trainmover.controller.events import SlowFound, SlowMeasured, SlowSuspected
from trainmover.controller.policies.stragglers.pace import Pace
from trainmover.protocol import messages as m

Law = Callable[[int, int], float]
"""Rank, step -> its own milliseconds."""


def job_of(policy: str = "act", **knobs: int) -> Job:
    """Ranks 0 to 3 on m1 to m4, and m5 a standby."""
    job = running(**{"machines": 4, "standbys": 1, **knobs})
    return changed(job, spec=msgspec.structs.replace(job.spec, stragglers=policy))


def jitter(seed: int, sigma: float = 0.02) -> Callable[[], float]:
    chance = random.Random(seed)
    return lambda: chance.lognormvariate(0, sigma)


class Told:
    """A job whose ranks tell their steps: `job` after what was found."""

    def __init__(self, job: Job, seed: int = 1, sigma: float = 0.02) -> None:
        self.job, self.step = job, 1
        self.pace = Pace()
        self.events: list[SlowFound | SlowMeasured] = []
        self.suspected: list[SlowSuspected] = []
        self.effects: list[Effect] = []
        self._jitter = jitter(seed, sigma)

    def steps(self, count: int, own: Law, cpu: Law | None = None) -> "Told":
        """So many more. own, cpu: milliseconds of a rank in a step, before jitter."""
        for _ in range(count):
            self.step += 1
            for rank in range(self.job.spec.world_size):
                noise = self._jitter()
                own_ms = own(rank, self.step) * noise
                cpu_ms = (cpu or (lambda rank, step: 80))(rank, self.step) * noise
                self._tell(rank, round(own_ms * 1000), round(cpu_ms * 1000))
        return self

    def until_found(self, most: int, own: Law, cpu: Law | None = None) -> int:
        """How many steps it takes until something is; `most` and one more if nothing is."""
        before = len(self.events)
        for count in range(1, most + 1):
            self.steps(1, own, cpu)
            if len(self.events) > before:
                return count
        return most + 1

    def _tell(self, rank: int, own_us: int, cpu_us: int) -> None:
        took = m.Took(step=self.step, own_us=own_us, cpu_us=cpu_us)
        at_us = self.step * 100_000
        for event in self.pace.take(self.job, self.job.epoch, [(rank, took)], at_us):
            if isinstance(event, SlowSuspected):
                self.suspected.append(event)
            else:
                self.events.append(event)
            self.job, effects = decide(self.job, event)
            self.effects += effects

    def first_commits(self) -> None:
        """Every rank has committed the first step of the epoch."""
        self.step += 1
        for rank, name in enumerate(self.job.seats):
            fact = committed(name, rank, self.job.epoch, step=self.step, gap_us=90_000)
            self.job, effects = decide(self.job, fact)
            self.effects += effects


def slow(rank: int, by: float = 1.2, of: float = 100.0) -> Law:
    """One rank is slower than the others."""
    return lambda one, step: of * (by if one == rank else 1.0)


def even(of: float = 100.0) -> Law:
    return lambda rank, step: of
