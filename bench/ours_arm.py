"""trainmover on the same model: four machines of one rank, a standby, examples/gpt.py as it is.

The ruler is the one of the other arm: the moments at which ranks committed their steps, which the
workers note by their own clock and the journal keeps.
"""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.gaps import Gap, Mark, worst_gap
from trainmover.controller.state import Incident, Job, Kind, MachineState, Outcome
from trainmover.journal import Journal
from trainmover.launch.run_job import RunHandle, RunOptions, RunResult, run_job
from trainmover.protocol.messages import LogSpec
from trainmover.server.notices import Notice, Stepped

MACHINES = 4
SETTLE_STEPS = 12
"""Undisturbed steps before each incident and after the last, so that medians are medians."""
LIMIT_S = 240.0
GPT = Path(__file__).resolve().parents[1] / "examples" / "gpt.py"


@dataclass(frozen=True)
class Trial:
    """One incident of ours. said_ms: what trainmover itself reports, as a check on the ruler."""

    kind: Kind
    gap: Gap
    said_ms: float
    rung: int
    equal: bool


class Plan:
    """Incidents to bring about, one after the other, each when the job has settled."""

    def __init__(self, kinds: list[Kind]) -> None:
        self._left = list(kinds)
        self._next_step = SETTLE_STEPS
        self._step = 0
        self.waits: asyncio.Future[object] | None = None

    def __call__(self, notice: Notice, handle: RunHandle) -> None:
        job = handle.server.job
        if isinstance(notice, Stepped) and notice.rows:
            self._step = max(self._step, notice.rows[-1].step)
        if not quiet(job) or (self.waits is not None and not self.waits.done()):
            self._next_step = self._step + SETTLE_STEPS
        elif self._step >= self._next_step and not self._left:
            handle.stop(0, "the bench has what it wants")
        elif self._step >= self._next_step and warm(job):
            self._next_step = self._step + SETTLE_STEPS
            self._begin(self._left.pop(0), handle)

    def _begin(self, kind: Kind, handle: RunHandle) -> None:
        victim = handle.server.job.seats[MACHINES // 2]
        order: Callable[[str], asyncio.Future[object]] = (
            handle.move if kind is Kind.MOVE else handle.kill  # type: ignore[assignment]
        )
        self.waits = order(victim)


def quiet(job: Job) -> bool:
    """Whether nothing is under way and the first steps are recorded."""
    open_ones = [i for i in job.incidents if i.outcome is Outcome.OPEN]
    return job.all_recorded and job.change is None and not open_ones


def warm(job: Job) -> bool:
    """Whether a standby is ready."""
    return any(machine.state is MachineState.WARM for machine in job.machines.values())


def limited(handle: RunHandle) -> None:
    """A job in which nothing happens any more ends as a failure, not never."""
    asyncio.get_running_loop().call_later(LIMIT_S, handle.stop, 1, f"{LIMIT_S:.0f} s are over")


def trials(kinds: list[Kind], job_args: list[str], comm: str) -> list[Trial]:
    """One job with these incidents, its groups carried by `comm`.

    Moves come first, since a machine that was moved away is a standby again. Raises RuntimeError if
    one of them did not come to its end."""
    with tempfile.TemporaryDirectory(prefix="bench-ours-") as folder:
        journal = Path(folder) / "journal.sqlite"
        options = RunOptions(
            argv=[str(GPT), *job_args],
            machines=MACHINES,
            standbys=max(1, kinds.count(Kind.RECOVERY)),
            comm=comm,
            journal=journal,
            log=LogSpec(show=[]),
        )
        result = run_job(options, on_change=Plan(kinds), on_ready=limited)
        with Journal.open(journal) as source:
            marks = [Mark(row.rank, row.step, row.at_us) for row in source.rows()]
    done = [i for i in result.job.incidents if i.outcome is Outcome.DONE]
    if result.code or [i.kind for i in done] != kinds:
        raise RuntimeError(f"wanted {kinds}, got {done} and status {result.code}: {result.text}")
    return [_trial(incident, marks, result) for incident in done]


def _trial(incident: Incident, marks: list[Mark], result: RunResult) -> Trial:
    moments = incident.marks.values()
    stayers = [r for r in range(result.job.spec.world_size) if r not in incident.ranks]
    gap = worst_gap(marks, stayers=stayers, from_us=min(moments), to_us=max(moments))
    assert gap is not None
    equal = all(certificate.equal for certificate in incident.certificates)
    return Trial(incident.kind, gap, incident.downtime_ms or 0.0, incident.rung, equal)
