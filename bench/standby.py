# SPDX-License-Identifier: Apache-2.0
"""What each mechanism buys: the paper's ablation (its Fig. 15), on CPU with a compiled model.

    python -m bench.standby            three trials of each arm, about fifteen minutes
    python -m bench.standby --quick    a look: one trial of each, no restart by torchrun

Arms, in turns, on examples/gpt.py --compile with four ranks on this host:

restart    torchrun and a checkpoint every ten steps
naive      the lost machine alone is replaced: a cold joiner, every group built anew (gloo)
two-phase  the same joiner on the native communicator, which replaces one member
sandbox    the joiner has been warmed for its rank; `run again` where it held another rank

While a cold joiner compiles, nobody sees what the groups of four ranks cost. So two-phase is shown
once more where nothing hides it: against the same warmed joiner whose groups are built anew, and on
sixteen ranks that are in sixteen groups more, uncompiled, with cold joiners.

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
REBUILT = Arm(ARGS, "gloo", "held")
LOSS = Wanted(Kind.RECOVERY)
ORDER = ("restart", "naive", "two-phase", "sandbox, run again", "sandbox")
MANY = ["16", *ours_arm.SMALL, "--steps", "1000000", "--log-every", "1000000"]
NAIVE_MANY = Arm(MANY, "gloo", "idle", ours_arm.MANY, machines=16)
TWO_PHASE_MANY = Arm(MANY, "native", "idle", ours_arm.MANY, machines=16)
SMOKE = Arm([*ARGS[1:], *ours_arm.SMALL], "native", "held", machines=2)
GROUPS = {
    "sandbox, groups anew": "sandbox",
    "many groups, naive": "many groups, two-phase",
}
"""What building all groups anew costs -> the same without."""
PIPELINE = Path(__file__).resolve().parents[1] / "tests" / "e2e" / "parallel" / "pipeline.py"
PIPELINED = Arm(["--steps", "1000000", "--pace", "0.05"], "native", "warm", PIPELINE, machines=6)
ROLES = {"first stage": 0, "middle stage": 2, "last stage": 4}
"""A slot of each."""
ROLES_MOST = 1.2


@dataclass
class Measured:
    """Downtimes in milliseconds by arm, in the order they were measured.

    connect  the part of it in which groups are built and state travels
    ran      jobs of the compiled model
    """

    crash: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in ORDER})
    groups: dict[str, list[float]] = field(default_factory=dict)
    connect: dict[str, list[float]] = field(default_factory=dict)
    roles: dict[str, list[float]] = field(default_factory=lambda: {role: [] for role in ROLES})
    moves: list[Trial] = field(default_factory=list)
    warm: list[Trial] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    def restart(self) -> None:
        with torchrun_job(ARGS) as job:
            self._note("restart", job.unplanned())

    def naive(self) -> None:
        self._one("naive", NAIVE, self.crash)

    def two_phase(self) -> None:
        self._one("two-phase", TWO_PHASE, self.crash)

    def sandbox(self) -> None:
        wanted = [Wanted(Kind.MOVE), Wanted(Kind.RECOVERY, held=True)]
        move, held, again = self._run([*wanted, Wanted(Kind.RECOVERY, held=False)], SANDBOX).trials
        self.moves.append(move)
        self.warm += [held, again]
        self._note("sandbox", held.gap)
        self._note("sandbox, run again", again.gap)
        self._connected("sandbox", held)

    def smoke(self) -> None:
        """Two machines, not compiled: one is moved, one is killed."""
        move, held = self._run([Wanted(Kind.MOVE), Wanted(Kind.RECOVERY, held=True)], SMOKE).trials
        self.moves.append(move)
        self.warm.append(held)
        self._note("sandbox", held.gap)

    def rebuilt(self) -> None:
        wanted = Wanted(Kind.RECOVERY, held=True)
        self._one("sandbox, groups anew", REBUILT, self.groups, wanted)

    def many_naive(self) -> None:
        self._one("many groups, naive", NAIVE_MANY, self.groups)

    def many_two_phase(self) -> None:
        self._one("many groups, two-phase", TWO_PHASE_MANY, self.groups)

    def by_role(self) -> None:
        roles = deque(ROLES)  # The first incident of a job is the slowest: each role's in turn.
        roles.rotate(len(self.roles["first stage"]))
        wanted = [Wanted(Kind.RECOVERY, ROLES[role]) for role in roles]
        for role, trial in zip(roles, ours_arm.run(wanted, PIPELINED).trials, strict=True):
            self._note(role, trial.gap, self.roles)

    def _one(
        self,
        name: str,
        arm: Arm,
        among: dict[str, list[float]],
        wanted: Wanted = LOSS,
    ) -> None:
        """A job with one incident."""
        (trial,) = self._run([wanted], arm).trials
        self._note(name, trial.gap, among)
        self._connected(name, trial)

    def _run(self, wanted: list[Wanted], arm: Arm) -> Ran:
        ran = ours_arm.run(wanted, arm)
        if arm.script == ours_arm.GPT:
            self.ran.append(ran)
        return ran

    def _connected(self, arm: str, trial: Trial) -> None:
        self.connect.setdefault(arm, []).append(trial.connect_ms)

    def _note(self, arm: str, gap: Gap, among: dict[str, list[float]] | None = None) -> None:
        (self.crash if among is None else among).setdefault(arm, []).append(gap.downtime_ms)
        self.loads.append(os.getloadavg()[0])
        said = f"{arm:<20}{gap.downtime_ms:8.0f} ms, load {self.loads[-1]:.1f}"
        print(said, file=sys.stderr, flush=True)


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("standby", __doc__, quick="one trial; no claim to be stable")
    parser.add_argument("--trials", type=int, default=3, help="of each arm (3)")
    options = parser.parse_args()
    measured = Measured()
    arms: list[Callable[[], None]] = [measured.naive, measured.two_phase, measured.sandbox]
    if not options.quick:
        many = [measured.rebuilt, measured.many_naive, measured.many_two_phase]
        arms = [measured.restart, *arms, *many, measured.by_role]
    if options.smoke:
        arms = [measured.smoke]
    for _ in range(1 if options.quick else options.trials):
        for arm in arms:
            arm()
    claims = judge(measured)
    table = tabulated(measured)
    where = result.setting(measured.loads)
    raw = {
        "crash": measured.crash,
        "groups": measured.groups,
        "connect": measured.connect,
        "roles": measured.roles,
        "moves": [asdict(trial) for trial in measured.moves],
    }
    path = result.write("standby", claims, table, where, raw, quick=options.quick)
    return result.say("standby", claims, [*table, f"written to {path}"], as_json=options.json)


def judge(measured: Measured) -> list[result.Claim]:
    """The claims with what was measured."""
    medians = {arm: statistics.median(all_) for arm, all_ in measured.crash.items() if all_}
    below = [(a, b) for a, b in itertools.pairwise(medians) if (a, b) != ("naive", "two-phase")]
    medians |= {arm: statistics.median(all_) for arm, all_ in measured.groups.items()}
    below += [(a, b) for a, b in GROUPS.items() if a in medians and b in medians]
    claims = [
        result.Claim(f"crash: {b} / {a}", medians[b] / medians[a], "ratio", 0.9) for a, b in below
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
    lines = [
        "| a machine is killed | downtime, ms: median (all) | of that groups and state, ms |",
        "|---|---|---|",
    ]
    pauses = {"planned move, sandbox": [move.gap.downtime_ms for move in measured.moves]}
    connect = measured.connect | {
        "planned move, sandbox": [move.connect_ms for move in measured.moves]
    }
    for arm, all_ in (measured.crash | measured.groups | measured.roles | pauses).items():
        if all_:
            part = _median_and_all(connect.get(arm, []))
            lines.append(f"| {arm} | {_median_and_all(all_)} | {part} |")
    step_ms = statistics.median(trial.step_ms for trial in measured.warm)
    return [*lines, "", f"A step takes {step_ms:.0f} ms."]


def _median_and_all(all_ms: list[float]) -> str:
    if not all_ms:
        return "-"
    return f"{statistics.median(all_ms):.0f} ({', '.join(f'{ms:.0f}' for ms in all_ms)})"


if __name__ == "__main__":
    sys.exit(main())
