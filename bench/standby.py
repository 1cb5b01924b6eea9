"""What each mechanism buys: the paper's ablation (its Fig. 15), on CPU with a compiled model.

    python -m bench.standby            three trials of each arm, about fifteen minutes
    python -m bench.standby --quick    a look: one trial of each, no restart by torchrun

Arms, in turns, on examples/gpt.py --compile with four ranks on this host:

restart    torchrun and a checkpoint every ten steps
naive      the lost machine alone is replaced: a cold joiner, every group built anew (gloo)
two-phase  the same joiner on the native communicator, which replaces one member
sandbox    the joiner has been warmed for its rank; `run again` where it held another rank

And by role, on a pipeline of three stages with two ranks each: a first, a middle, a last one is
killed, in turns, and taken by a standby that holds none of them.

All arms find their kernels in the compile cache on disk, which the first job fills.
"""

import itertools
import os
import statistics
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import ours_arm, result
from bench.gaps import Gap
from bench.ours_arm import Arm, Ran, Trial, Wanted
from bench.torchrun_arm import torchrun_job
from trainmover.controller.state import Kind

ARGS = ["--compile", "--layers", "1", "--steps", "1000000", "--log-every", "1000000"]
RESTART_MOST = 1 / 30
FIRST_STEP_MOST = 1.5
RECORD_MOST = 0.05
STEPS_OF_A_MOVE = 2
NAIVE = Arm(ARGS, "gloo", "idle")
TWO_PHASE = Arm(ARGS, "native", "idle")
SANDBOX = Arm(ARGS, "native", "held")
ORDER = ("restart", "naive", "two-phase", "sandbox, run again", "sandbox")
PIPELINE = Path(__file__).resolve().parents[1] / "tests" / "e2e" / "parallel" / "pipeline.py"
PIPELINED = Arm(["--steps", "1000000", "--pace", "0.05"], "native", "warm", PIPELINE, machines=6)
ROLES = {"first stage": 0, "middle stage": 2, "last stage": 4}
"""A slot of each."""
ROLES_MOST = 1.2


@dataclass
class Measured:
    """Downtimes in milliseconds by arm, in the order they were measured."""

    crash: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in ORDER})
    roles: dict[str, list[float]] = field(default_factory=lambda: {role: [] for role in ROLES})
    moves: list[Trial] = field(default_factory=list)
    warm: list[Trial] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    def restart(self) -> None:
        with torchrun_job(ARGS) as job:
            self._note("restart", job.unplanned())

    def naive(self) -> None:
        (trial,) = self._run([Wanted(Kind.RECOVERY)], NAIVE).trials
        self._note("naive", trial.gap)

    def two_phase(self) -> None:
        (trial,) = self._run([Wanted(Kind.RECOVERY)], TWO_PHASE).trials
        self._note("two-phase", trial.gap)

    def sandbox(self) -> None:
        wanted = [Wanted(Kind.MOVE), Wanted(Kind.RECOVERY, held=True)]
        move, held, again = self._run([*wanted, Wanted(Kind.RECOVERY, held=False)], SANDBOX).trials
        self.moves.append(move)
        self.warm += [held, again]
        self._note("sandbox", held.gap)
        self._note("sandbox, run again", again.gap)

    def by_role(self) -> None:
        roles = deque(ROLES)  # The first incident of a job is the slowest: each role's in turn.
        roles.rotate(len(self.roles["first stage"]))
        wanted = [Wanted(Kind.RECOVERY, ROLES[role]) for role in roles]
        for role, trial in zip(roles, ours_arm.run(wanted, PIPELINED).trials, strict=True):
            self._note(role, trial.gap, self.roles)

    def _run(self, wanted: list[Wanted], arm: Arm) -> Ran:
        ran = ours_arm.run(wanted, arm)
        self.ran.append(ran)
        return ran

    def _note(self, arm: str, gap: Gap, among: dict[str, list[float]] | None = None) -> None:
        (self.crash if among is None else among)[arm].append(gap.downtime_ms)
        self.loads.append(os.getloadavg()[0])
        said = f"{arm:<20}{gap.downtime_ms:8.0f} ms, load {self.loads[-1]:.1f}"
        print(said, file=sys.stderr, flush=True)


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("standby", __doc__)
    parser.add_argument("--quick", action="store_true", help="one trial; no claim to be stable")
    parser.add_argument("--trials", type=int, default=3, help="of each arm (3)")
    options = parser.parse_args()
    measured = Measured()
    arms: list[Callable[[], None]] = [measured.naive, measured.two_phase, measured.sandbox]
    if not options.quick:
        arms = [measured.restart, *arms, measured.by_role]
    for _ in range(1 if options.quick else options.trials):
        for arm in arms:
            arm()
    claims = judge(measured)
    table = tabulated(measured)
    where = result.setting(measured.loads)
    raw = {
        "crash": measured.crash,
        "roles": measured.roles,
        "moves": [asdict(trial) for trial in measured.moves],
    }
    path = result.write("standby", claims, table, where, raw, quick=options.quick)
    return result.say("standby", claims, [*table, f"written to {path}"], as_json=options.json)


def judge(measured: Measured) -> list[result.Claim]:
    """The claims with what was measured."""
    medians = {arm: statistics.median(all_) for arm, all_ in measured.crash.items() if all_}
    arms = list(medians)
    claims = [
        result.Claim(f"crash: {b} / {a}", medians[b] / medians[a], "ratio", 0.9)
        for a, b in itertools.pairwise(arms)
    ]
    if "restart" in medians:
        ratio = medians["sandbox"] / medians["restart"]
        claims.append(result.Claim("crash: sandbox / restart", ratio, "ratio", RESTART_MOST))
    first = statistics.median(trial.first_step_ms / trial.step_ms for trial in measured.warm)
    claims.append(
        result.Claim("first step after an incident / median step", first, "ratio", FIRST_STEP_MOST)
    )
    beside = statistics.median(
        (move.gap.downtime_ms - move.state_ms) / move.step_ms for move in measured.moves
    )
    claims.append(
        result.Claim("planned move without its state transfer", beside, "steps", STEPS_OF_A_MOVE)
    )
    if any(measured.roles.values()):
        by_role = [statistics.median(all_) for all_ in measured.roles.values()]
        spread = max(by_role) / min(by_role)
        claims.append(
            result.Claim("crash by role: longest / shortest", spread, "ratio", ROLES_MOST)
        )
    size = max(record_ratio(ran) for ran in measured.ran)
    claims.append(result.Claim("record: moments / full", size, "ratio", RECORD_MOST))
    return claims


def record_ratio(ran: Ran) -> float:
    """Bytes of the largest record stored to what it would take whole."""
    stored = [fact for fact in ran.recorded.values() if fact.bytes]
    return max(fact.bytes / fact.bytes_full for fact in stored)


def tabulated(measured: Measured) -> list[str]:
    """Downtimes as a table, milliseconds."""
    lines = ["| a machine is killed | downtime, ms: median (all) |", "|---|---|"]
    for arm, all_ in (measured.crash | measured.roles).items():
        if all_:
            each = ", ".join(f"{ms:.0f}" for ms in all_)
            lines.append(f"| {arm} | {statistics.median(all_):.0f} ({each}) |")
    pauses = [move.gap.downtime_ms for move in measured.moves]
    each = ", ".join(f"{ms:.0f}" for ms in pauses)
    lines.append(f"| planned move, sandbox | {statistics.median(pauses):.0f} ({each}) |")
    step_ms = statistics.median(trial.step_ms for trial in measured.warm)
    return [*lines, "", f"A step takes {step_ms:.0f} ms."]


if __name__ == "__main__":
    sys.exit(main())
