# SPDX-License-Identifier: Apache-2.0
"""Account of the time of a job, from what its journals say. Pure.

    training      between two committed steps, as long as steps usually take
    lost          what a step took longer because of an incident, by cause
    starting      from the command to the first step; ending: from the last one to the end
    made again    steps that a later run had to make once more, since it went on from before them
    not running   between two runs of the job

A job that is queued again has several runs, one after the other; they are one account.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trainmover.controller.state import Incident, Kind, Outcome
from trainmover.server.view.causes import cause_of

USUAL_STEPS = 32
"""So many steps before an incident say how long one usually takes there."""
HELPS = 0.95
"""A move has helped if steps take at most so much of what they took."""


@dataclass(frozen=True)
class RunPast:
    """One run. Times are microseconds of the host's clock.

    resumed  the step it went on from; 0: it began
    over     the job has ended, with `code`
    steps, at_us  what the lowest rank has committed, and when
    """

    run: str
    machines: int
    ranks: int
    begun_us: int
    ended_us: int
    resumed: int = 0
    over: bool = False
    code: int | None = None
    incidents: Sequence[Incident] = ()
    steps: Sequence[int] = ()
    at_us: Sequence[int] = ()

    def next_commit(self, incident: Incident) -> int | None:
        """Index of the first commit after an incident; None if it stopped nobody."""
        if incident.outcome is Outcome.CANCELLED:
            return None
        if incident.step is None:
            return bisect_right(self.at_us, max(incident.marks.values(), default=0))
        return bisect_right(self.steps, incident.step + incident.redone)

    def usual_us(self, index: int) -> float:
        """Return how long a step takes before commit `index`; where there are none, after it."""
        window = range(max(1, index - USUAL_STEPS), index)
        window = window or range(index + 1, min(len(self.steps), index + 1 + USUAL_STEPS))
        gaps = [self._gap_us(at) / max(1, self.steps[at] - self.steps[at - 1]) for at in window]
        return statistics.median(gaps) if gaps else 0.0

    def _gap_us(self, index: int) -> int:
        return max(0, self.at_us[index] - self.at_us[index - 1])

    def lost_us(self, index: int) -> float:
        """Return by what commit `index` came later than usual."""
        made = self.steps[index] - self.steps[index - 1]
        return max(0.0, self._gap_us(index) - made * self.usual_us(index))


@dataclass(frozen=True)
class Disturbance:
    """Incident as the account has it. at_s: since the job began. lost_s: what it has cost."""

    run: str
    number: int
    cause: str
    kind: str
    machine: str
    joiner: str
    outcome: str
    step: int | None
    at_s: float
    downtime_ms: float | None
    lost_s: float
    redone: int
    phases_ms: dict[str, float]
    text: str


@dataclass(frozen=True)
class Moved:
    """Gain of a planned move: milliseconds a step before and after it, and what was saved
    until the next incident, its own pause taken off."""

    number: int
    machine: str
    joiner: str
    step: int
    before_ms: float
    after_ms: float
    saved_s: float

    @property
    def helped(self) -> bool:
        return self.after_ms <= HELPS * self.before_ms


@dataclass
class Goodput:
    """The account. `parts` sum up to `whole_s`; of them `training` is what it was for.

    redone   steps that were made again, with the same numbers
    unequal  incidents with steps that were not the same then
    missing  numbers of steps that were never committed
    """

    runs: list[str]
    machines: int
    ranks: int
    whole_s: float = 0.0
    step: int = 0
    steps: int = 0
    step_ms: float | None = None
    over: bool = False
    code: int | None = None
    training_s: float = 0.0
    starting_s: float = 0.0
    ending_s: float = 0.0
    not_running_s: float = 0.0
    made_again_s: float = 0.0
    lost_s: dict[str, float] = field(default_factory=dict)
    redone: int = 0
    unequal: int = 0
    missing: int = 0
    incidents: list[Disturbance] = field(default_factory=list)
    moves: list[Moved] = field(default_factory=list)
    progress: list[tuple[float, int]] = field(default_factory=list)

    @property
    def share(self) -> float | None:
        """Return the part of all time that was training; None before any time was."""
        return self.training_s / self.whole_s if self.whole_s else None

    @property
    def parts(self) -> dict[str, float]:
        """Seconds, the biggest loss first."""
        lost = sorted(self.lost_s.items(), key=lambda part: -part[1])
        around = {
            "steps made again": self.made_again_s,
            "starting": self.starting_s,
            "ending": self.ending_s,
            "not running": self.not_running_s,
        }
        return {"training": self.training_s, **dict(lost)} | {
            name: seconds for name, seconds in around.items() if seconds > 0
        }

    def downtimes_ms(self, kind: str = "") -> list[float]:
        """Return the downtimes of changes that came to their end; kind: move or recovery."""
        of = (one for one in self.incidents if kind in ("", one.kind))
        return sorted(one.downtime_ms for one in of if one.downtime_ms is not None)


def percentile(ascending: Sequence[float], share: float) -> float | None:
    """Return the least value that `share` of all do not exceed; None of nothing.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([1.0, 2.0, 3.0, 4.0], 0.9)
    (2.0, 4.0)
    """
    if not ascending:
        return None
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def goodput(runs: Sequence[RunPast], points: int = 400) -> Goodput:
    """Return the account of one job, its runs in order. points: of `progress`, at most about so
    many."""
    last = runs[-1]
    account = Goodput([run.run for run in runs], last.machines, last.ranks)
    account.over, account.code = last.over, last.code
    begun_us = runs[0].begun_us
    for run, later in zip(runs, [*runs[1:], None], strict=True):
        _add_run(account, run, begun_us)
        if later is not None:
            _add_between(account, run, later)
        account.progress += _thinned(run, begun_us, max(2, points // len(runs)))
    account.whole_s = (last.ended_us - begun_us) / 1e6
    account.step = max((run.steps[-1] for run in runs if run.steps), default=0)
    account.step_ms = _step_ms(runs)
    return account


def _add_run(account: Goodput, run: RunPast, begun_us: int) -> None:
    charged: dict[int, str] = {}
    in_gaps_s = 0.0
    for incident in run.incidents:
        if not (cause := cause_of(incident)):
            continue
        index, lost_s = run.next_commit(incident), 0.0
        if index is not None and index not in charged:
            charged[index] = cause
            lost_s = run.lost_us(index) / 1e6 if 0 < index < len(run.steps) else 0.0
            _lose(account, cause, lost_s)
            in_gaps_s += lost_s
        account.redone += incident.redone
        account.unequal += bool(incident.unequal)
        account.incidents.append(_disturbance(run, incident, cause, lost_s, begun_us))
    _add_ends(account, run, charged.get(len(run.steps), ""))
    if run.steps:
        first_s = min(run.usual_us(0), run.at_us[0] - run.begun_us) / 1e6
        account.training_s += (run.at_us[-1] - run.at_us[0]) / 1e6 - in_gaps_s + first_s
        account.missing += run.steps[-1] - run.steps[0] + 1 - len(run.steps)
    account.steps += len(run.steps)
    account.moves += _moves(run)


def _lose(account: Goodput, cause: str, seconds: float) -> None:
    if seconds:
        account.lost_s[cause] = account.lost_s.get(cause, 0.0) + seconds


def _add_ends(account: Goodput, run: RunPast, cause: str) -> None:
    """Add the time before the first step, and after the last one; cause: of the incident that was
    the end."""
    if not run.steps:
        account.starting_s += (run.ended_us - run.begun_us) / 1e6
        return
    account.starting_s += max(0.0, run.at_us[0] - run.begun_us - run.usual_us(0)) / 1e6
    left_s = max(0, run.ended_us - run.at_us[-1]) / 1e6
    if cause:
        _lose(account, cause, left_s)
    else:
        account.ending_s += left_s


def _add_between(account: Goodput, run: RunPast, later: RunPast) -> None:
    """Add the time between two runs; what the next run did not go on from was made for nothing."""
    account.not_running_s += max(0, later.begun_us - run.ended_us) / 1e6
    again = len(run.steps) - bisect_right(run.steps, later.resumed)
    wasted_s = min(again * run.usual_us(len(run.steps)) / 1e6, account.training_s)
    account.made_again_s += wasted_s
    account.training_s -= wasted_s
    account.redone += again
    account.steps -= again


def _disturbance(
    run: RunPast, incident: Incident, cause: str, lost_s: float, begun_us: int
) -> Disturbance:
    began_us = min(incident.marks.values(), default=run.begun_us)
    return Disturbance(
        run=run.run,
        number=incident.number,
        cause=cause,
        kind=str(incident.kind),
        machine=incident.machine or "",
        joiner=incident.joiner or "",
        outcome=str(incident.outcome),
        step=incident.step,
        at_s=(began_us - begun_us) / 1e6,
        downtime_ms=incident.downtime_ms,
        lost_s=lost_s,
        redone=incident.redone,
        phases_ms=incident.phases_ms,
        text=incident.cause,
    )


def _moves(run: RunPast) -> Iterator[Moved]:
    """Planned ones, with enough steps on both sides to tell."""
    ends = sorted({i for one in run.incidents if (i := run.next_commit(one)) is not None})
    for incident in run.incidents:
        index = run.next_commit(incident)
        if incident.kind is not Kind.MOVE or incident.outcome is not Outcome.DONE or not index:
            continue
        after = next((end for end in ends if end > index), len(run.steps))
        begun = next((end for end in reversed(ends) if end < index), 0)
        before_ms = _median_ms(run, range(max(begun + 1, index - USUAL_STEPS), index))
        after_ms = _median_ms(run, range(index + 1, min(after, index + 1 + USUAL_STEPS)))
        if before_ms is None or after_ms is None:
            continue
        made = after - index
        paused_s = (incident.downtime_ms or 0.0) / 1e3
        yield Moved(
            number=incident.number,
            machine=incident.machine or "",
            joiner=incident.joiner or "",
            step=run.steps[index - 1],
            before_ms=before_ms,
            after_ms=after_ms,
            saved_s=(before_ms - after_ms) * made / 1e3 - paused_s,
        )


def _median_ms(run: RunPast, window: range) -> float | None:
    gaps = [(run.at_us[at] - run.at_us[at - 1]) / 1e3 for at in window]
    return statistics.median(gaps) if len(gaps) >= USUAL_STEPS // 4 else None


def _step_ms(runs: Iterable[RunPast]) -> float | None:
    """Median of all steps, or of a sample of a long run."""
    gaps: list[float] = []
    for run in runs:
        every = max(1, len(run.steps) // 10_000)
        places = range(1, len(run.steps), every)
        gaps += [(run.at_us[at] - run.at_us[at - 1]) / 1e3 for at in places]
    return statistics.median(gaps) if gaps else None


def _thinned(run: RunPast, begun_us: int, points: int) -> Iterator[tuple[float, int]]:
    """Evenly over the run, and around every gap that is long: a pause is seen as one."""
    count = len(run.steps)
    every = max(1, count // points)
    usual = run.usual_us(count)
    shown = set(range(0, count, every)) | ({count - 1} if count else set())
    long = sorted(range(1, count), key=lambda at: run.at_us[at - 1] - run.at_us[at])[:points]
    for at in long:
        if run.at_us[at] - run.at_us[at - 1] > 3 * usual:
            shown |= {at - 1, at}
    for at in sorted(shown):
        yield (run.at_us[at] - begun_us) / 1e6, run.steps[at]
