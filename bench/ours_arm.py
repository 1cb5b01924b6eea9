# SPDX-License-Identifier: Apache-2.0
"""trainmover on the same model: four machines of one rank, standbys, examples/gpt.py as it is.

The ruler is the one of the other arm: the moments at which ranks committed their steps, which the
workers note by their own clock and the journal keeps.
"""

import asyncio
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.gaps import Gap, Mark, median_step_ms, worst_gap
from trainmover.communicators import STAGED
from trainmover.controller.change.incidents import lately
from trainmover.controller.state import Incident, Job, Kind, Machine, MachineState, Outcome
from trainmover.ids import MachineId, Rank
from trainmover.journal import Journal
from trainmover.launch.run_job import RunHandle, RunOptions, RunResult, run_job
from trainmover.protocol.messages import LogSpec, Recorded
from trainmover.server.view.notices import Notice, Stepped

MACHINES = 4
SETTLE_STEPS = 12
"""Undisturbed steps before each incident and after the last, so that medians are medians."""
LIMIT_S = 600.0
GPT = Path(__file__).resolve().parents[1] / "examples" / "gpt.py"
SMALL = ("--layers", "1", "--dim", "32", "--context", "16", "--batch", "2")
"""A model of which a step takes some milliseconds."""
MANY = Path(__file__).with_name("many_groups.py")
READY = {
    "idle": (MachineState.IDLE,),
    "warm": (MachineState.WARM,),
    "held": (MachineState.WARM,),
}
"""What a standby must have come to before an incident, by `--readiness`."""


_DICE = random.Random(1)
"""One for all jobs of a run: each new one would draw the same moment of a step again."""


@dataclass(frozen=True)
class Arm:
    """How a job is run. `readiness` and `gpu_comm` as the flags of `trainmover run`."""

    job_args: Sequence[str]
    comm: str
    readiness: str = "held"
    script: Path = GPT
    machines: int = MACHINES
    gpu_comm: str = STAGED


@dataclass(frozen=True)
class Wanted:
    """An incident to bring about.

    slot  that loses its machine; None: the middle one
    held  True: the slot that a standby holds; False: one that none does; None: as `slot` says
    """

    kind: Kind
    slot: int | None = None
    held: bool | None = None


@dataclass(frozen=True)
class Trial:
    """One incident of ours. said_ms: what trainmover itself reports, as a check on the ruler.

    first_step_ms  from the switchover to the first commit of the last rank
    state_ms       of the transfer of state
    connect_ms     from when every joiner is up to the end of the switchover: groups, and state
    redone         steps that were made again, of a loss behind a step's gate
    """

    kind: Kind
    gap: Gap
    said_ms: float
    rung: int
    equal: bool
    first_step_ms: float = 0.0
    state_ms: float = 0.0
    connect_ms: float = 0.0
    step_ms: float = 0.0
    redone: int = 0


@dataclass(frozen=True)
class Ran:
    """One job of ours: its incidents in order, and what its ranks recorded."""

    trials: list[Trial]
    recorded: Mapping[Rank, Recorded] = field(default_factory=dict)


class Plan:
    """Incidents to bring about, one after the other, each when the job has settled."""

    def __init__(self, wanted: Sequence[Wanted], readiness: str) -> None:
        self._left = list(wanted)
        self._readiness = readiness
        self._next_step = SETTLE_STEPS
        self._steps: dict[Rank, int] = {}
        self.waits: asyncio.Future[object] | None = None

    def __call__(self, notice: Notice, handle: RunHandle) -> None:
        job = handle.server.job
        if isinstance(notice, Stepped) and notice.rows:
            known = self._steps.get(notice.rank, 0)
            self._steps[notice.rank] = max(known, notice.rows[-1].step)
        if not quiet(job) or (self.waits is not None and not self.waits.done()):
            self._next_step = self._step + SETTLE_STEPS
        elif self._step >= self._next_step and not self._left:
            handle.stop(0, "the bench has what it wants")
        elif self._step >= self._next_step and ready(job, self._readiness):
            self._next_step = self._step + SETTLE_STEPS
            self._begin(self._left.pop(0), handle)

    @property
    def _step(self) -> int:
        """The last one that all ranks have told: some tell later than others."""
        return min(self._steps.values(), default=0)

    def _begin(self, wanted: Wanted, handle: RunHandle) -> None:
        """Losses come at any moment of a step; a step is told as it is committed."""
        loses = wanted.kind is Kind.RECOVERY
        order: Callable[[str], asyncio.Future[object]] = (
            handle.kill if loses else handle.move  # type: ignore[assignment]
        )
        step_s = (handle.server.progress.step_ms or 0.0) / 1000
        waits_s = _DICE.random() * step_s if loses else 0.0
        self.waits = asyncio.ensure_future(
            _later(waits_s, order, victim(handle.server.job, wanted))
        )


async def _later(
    delay_s: float, order: Callable[[str], asyncio.Future[object]], machine: MachineId
) -> object:
    await asyncio.sleep(delay_s)
    return await order(machine)


def victim(job: Job, wanted: Wanted) -> MachineId:
    """The machine to lose."""
    slots = range(len(job.seats))
    if wanted.held is not None:
        held = {machine.held for machine in standbys(job)}
        slot = next(slot for slot in slots if (slot in held) is wanted.held)
    else:
        slot = len(slots) // 2 if wanted.slot is None else wanted.slot
    return job.seats[slot]


def standbys(job: Job) -> list[Machine]:
    """Machines without ranks."""
    return [machine for machine in job.machines.values() if machine.id not in job.seats]


def quiet(job: Job) -> bool:
    """Whether nothing is under way and the first steps are recorded."""
    open_ones = [i for i in job.incidents if i.outcome is Outcome.OPEN]
    return job.all_recorded and job.change is None and not open_ones


def ready(job: Job, readiness: str) -> bool:
    """Whether all standbys have come as far as they should."""
    return all(
        machine.state in READY[readiness] and (readiness != "held" or machine.held is not None)
        for machine in standbys(job)
    )


def limited(handle: RunHandle) -> None:
    """A job in which nothing happens any more ends as a failure, not never."""
    asyncio.get_running_loop().call_later(LIMIT_S, handle.stop, 1, f"{LIMIT_S:.0f} s are over")


def trials(
    kinds: list[Kind], job_args: Sequence[str], comm: str, machines: int = MACHINES
) -> list[Trial]:
    """One job with these incidents at the middle slot. See `run`."""
    return run([Wanted(kind) for kind in kinds], Arm(job_args, comm, machines=machines)).trials


def run(wanted: Sequence[Wanted], arm: Arm) -> Ran:
    """One job with these incidents.

    Moves come first, since a machine that was moved away is a standby again. Raises RuntimeError if
    one of them did not come to its end."""
    kinds = [incident.kind for incident in wanted]
    with tempfile.TemporaryDirectory(prefix="bench-ours-") as folder:
        journal = Path(folder) / "journal.sqlite"
        options = RunOptions(
            argv=[str(arm.script), *arm.job_args],
            machines=arm.machines,
            standbys=max(1, kinds.count(Kind.RECOVERY)),
            comm=arm.comm,
            gpu_comm=arm.gpu_comm,
            readiness=arm.readiness,
            journal=journal,
            log=LogSpec(show=[]),
        )
        result = run_job(options, on_change=Plan(wanted, arm.readiness), on_ready=limited)
        with Journal.open(journal) as source:
            marks = [Mark(row.rank, row.step, row.at_us) for row in source.rows()]
    done = [i for i in lately(result.job) if i.outcome is Outcome.DONE]
    if result.code or [i.kind for i in done] != kinds:
        raise RuntimeError(f"wanted {kinds}, got {done} and status {result.code}: {result.text}")
    return Ran([_trial(incident, marks, result) for incident in done], result.job.recorded)


def _trial(incident: Incident, marks: list[Mark], result: RunResult) -> Trial:
    moments = incident.marks.values()
    stayers = [r for r in range(result.job.spec.world_size) if r not in incident.ranks]
    gap = worst_gap(marks, stayers=stayers, from_us=min(moments), to_us=max(moments))
    assert gap is not None
    return Trial(
        kind=incident.kind,
        gap=gap,
        said_ms=incident.downtime_ms or 0.0,
        rung=incident.rung,
        equal=all(certificate.equal for certificate in incident.certificates),
        first_step_ms=incident.phases_ms["first_step"],
        state_ms=max((c.state_ms for c in incident.certificates), default=0.0),
        connect_ms=incident.phases_ms["state"] + incident.phases_ms["switchover"],
        step_ms=median_step_ms(marks),
        redone=incident.redone,
    )
