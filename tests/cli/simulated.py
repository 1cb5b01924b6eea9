"""Runs that a report is made of, as the simulator plays them: real decisions, no process."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
import pytest

from trainmover.cli.report.goodput import RunPast
from trainmover.controller.decide import decide
from trainmover.controller.effects import Closed
from trainmover.controller.events import EVENTS
from trainmover.controller.state import Incident, Job, Phase
from trainmover.simulator.places.disk import Disk
from trainmover.simulator.ranks import steps
from trainmover.simulator.story import Result, plan_of, play


@dataclass
class Played:
    """One seed, from its start to its end. commits: step to when the lowest rank made it."""

    result: Result
    disk: Disk
    commits: dict[int, int] = field(default_factory=dict)

    @property
    def events(self) -> list[EVENTS]:
        return list(self.disk.events())

    @property
    def job(self) -> Job:
        job = self.disk.nothing_yet()
        for event in self.disk.events():
            job, _ = decide(job, event)
        return job

    def past(self, run: str = "played") -> RunPast:
        job, events, left = self.disk.nothing_yet(), self.events, list[Incident]()
        for event in events:
            job, effects = decide(job, event)
            left += [one.incident for one in effects if isinstance(one, Closed)]
        made = sorted(self.commits)
        return RunPast(
            run=run,
            machines=job.spec.machines,
            ranks=job.spec.world_size,
            begun_us=events[0].at_us,
            ended_us=max([events[-1].at_us, *self.commits.values()]),
            over=job.phase is Phase.ENDED,
            code=job.code,
            incidents=(*left, *job.incidents),
            steps=made,
            at_us=[self.commits[step] for step in made],
        )


@cache
def played(seed: int) -> Played:
    """Its workers say when they commit, which the simulator's own do not need to."""
    row_of = steps._row
    commits: dict[int, int] = {}

    def row(worker: Any) -> Any:
        made = row_of(worker)
        if worker.rank == 0:
            commits.setdefault(made.step, worker.world.now)
        return msgspec.structs.replace(made, at_us=worker.world.now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_row", row)
        result = play(plan_of(seed))
    assert not result.violation
    return Played(result, result.world.disk, commits)
