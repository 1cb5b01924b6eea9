# SPDX-License-Identifier: Apache-2.0
"""How long does a job stand still when a machine is replaced? Beside torchrun, in one sitting.

    python -m bench.downtime            five trials of each, about ten minutes
    python -m bench.downtime --quick    one or two of each, under a minute and a half

Both arms train examples/gpt.py's model with four ranks on this host, one rank a machine, and take
turns, so that they see the same load. In both, the machine of rank 2 is lost (agent and worker
killed at once) or drained. See bench/gaps.py for the ruler and bench/torchrun_arm.py for what makes
the comparison kind to torchrun. Ours runs on the native communicator, and once more on gloo, which
builds whole groups anew: the difference is the communicator's.
"""

import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from bench import ours_arm, result
from bench.gaps import Gap
from bench.torchrun_arm import torchrun_job
from trainmover import communicators
from trainmover.controller.state import Kind

UNPLANNED_MOST = 1 / 15
PLANNED_MOST = 1 / 30
MANY = 8
LOSSES = 6
"""Of ours in each job of a full run: they are cheap, and few come behind a step's gate."""
BEHIND_MOST, BEHIND_OF = 0.3, 20
"""Share of the losses that may; and how many there must be to say so. Of a step of 100 ms the time
from its gate to its next record is about 10 ms."""
CLAIMED = ((Kind.RECOVERY, "unplanned", UNPLANNED_MOST), (Kind.MOVE, "planned", PLANNED_MOST))
JOB_ARGS = ["--steps", "1000000", "--log-every", "1000000"]


@dataclass
class Measured:
    """Downtimes in milliseconds, in the order they were measured."""

    ours: dict[Kind, list[ours_arm.Trial]] = field(default_factory=lambda: {k: [] for k in Kind})
    on_gloo: dict[Kind, list[ours_arm.Trial]] = field(default_factory=lambda: {k: [] for k in Kind})
    torchrun: dict[Kind, list[Gap]] = field(default_factory=lambda: {k: [] for k in Kind})
    loads: list[float] = field(default_factory=list)
    machines: int = ours_arm.MACHINES
    job_args: Sequence[str] = tuple(JOB_ARGS)

    def run_torchrun(self, kinds: list[Kind]) -> None:
        with torchrun_job(self.job_args, self.machines) as job:
            for kind in kinds:
                gap = job.planned() if kind is Kind.MOVE else job.unplanned()
                self.torchrun[kind].append(gap)
                self._said("torchrun", kind, gap)

    def run_ours(self, kinds: list[Kind]) -> None:
        for trial in ours_arm.trials(kinds, self.job_args, communicators.default(), self.machines):
            self.ours[trial.kind].append(trial)
            self._said("trainmover", trial.kind, trial.gap)

    def run_on_gloo(self, kinds: list[Kind]) -> None:
        for trial in ours_arm.trials(kinds, self.job_args, "gloo", self.machines):
            self.on_gloo[trial.kind].append(trial)
            self._said("on gloo", trial.kind, trial.gap)

    def ours_ms(self, kind: Kind) -> float:
        return statistics.median(trial.gap.downtime_ms for trial in self.ours[kind])

    def torchrun_ms(self, kind: Kind) -> float:
        return statistics.median(gap.downtime_ms for gap in self.torchrun[kind])

    def _said(self, arm: str, kind: Kind, gap: Gap) -> None:
        self.loads.append(os.getloadavg()[0])
        lost = f"{gap.steps_lost} steps lost, load {self.loads[-1]:.1f}"
        print(f"{arm:<11}{kind:<9}{gap.downtime_ms:8.0f} ms, {lost}", file=sys.stderr, flush=True)


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("downtime", __doc__, quick="few trials; no claim to be stable")
    parser.add_argument("--trials", type=int, default=5, help="of each kind and arm (5)")
    options = parser.parse_args()
    few = smoke if options.smoke else quick
    measured = few() if options.quick else full(options.trials)
    claims = judge(measured)
    table = tabulated(measured)
    where = result.setting(measured.loads)
    path = result.write("downtime", claims, table, where, raw(measured), quick=options.quick)
    return result.say("downtime", claims, [*table, f"written to {path}"], as_json=options.json)


def full(trials: int) -> Measured:
    """Turn by turn, a fresh job for each turn."""
    measured = Measured()
    for _ in range(trials):
        measured.run_torchrun([Kind.RECOVERY, Kind.MOVE])
        measured.run_ours([Kind.MOVE] + [Kind.RECOVERY] * LOSSES)
        measured.run_on_gloo([Kind.MOVE, Kind.RECOVERY])
    return measured


def quick() -> Measured:
    """One job of each arm, with one incident of each kind; ours with two."""
    measured = Measured()
    measured.run_torchrun([Kind.RECOVERY, Kind.MOVE])
    measured.run_ours([Kind.MOVE, Kind.MOVE, Kind.RECOVERY, Kind.RECOVERY])
    measured.run_on_gloo([Kind.MOVE, Kind.RECOVERY])
    return measured


def smoke() -> Measured:
    """Two machines: an incident of each kind with ours, and a planned stop with torchrun."""
    measured = Measured(machines=2, job_args=[*JOB_ARGS, *ours_arm.SMALL])
    measured.run_torchrun([Kind.MOVE])
    measured.run_ours([Kind.MOVE, Kind.RECOVERY])
    return measured


def judge(measured: Measured) -> list[result.Claim]:
    """The claims with what was measured."""
    losses = measured.ours[Kind.RECOVERY]
    claims = [
        result.Claim(
            f"{name} downtime / torchrun's",
            measured.ours_ms(kind) / measured.torchrun_ms(kind),
            "ratio",
            most,
        )
        for kind, name, most in CLAIMED
        if measured.torchrun[kind]
    ]
    if len(losses) >= BEHIND_OF:
        share = sum(trial.redone > 0 for trial in losses) / len(losses)
        claims.append(result.Claim("share of losses that make steps again", share, "", BEHIND_MOST))
    return claims


def tabulated(measured: Measured) -> list[str]:
    """Downtimes as a table, milliseconds."""
    arms = ("trainmover", "the same on gloo", "torchrun")
    heads = " | ".join(f"{arm}: median (all)" for arm in arms)
    lines = [f"| downtime, ms | {heads} | steps redone |", "|---|---|---|---|---|"]
    for kind, name in ((Kind.RECOVERY, "machine killed"), (Kind.MOVE, "planned")):
        ours = [trial.gap for trial in measured.ours[kind]]
        gloo = [trial.gap for trial in measured.on_gloo[kind]]
        theirs = measured.torchrun[kind]
        cells = [f"{_median(gaps)} ({_all(gaps)})" for gaps in (ours, gloo, theirs)]
        redone = [t.redone for t in measured.ours[kind]], [gap.steps_lost for gap in theirs]
        most = " / ".join(str(max(one, default="-")) for one in redone)
        lines.append(f"| {name} | {' | '.join(cells)} | {most} |")
    return [*lines, "", _behind_gates(measured.ours[Kind.RECOVERY])]


def _behind_gates(losses: list[ours_arm.Trial]) -> str:
    """Say which losses took all ranks back to a snapshot."""
    back = [trial for trial in losses if trial.redone]
    said = f"{len(back)} of {len(losses)} losses came behind a step's gate"
    if not back:
        return f"{said}."
    steps = ", ".join(str(trial.redone) for trial in back)
    return f"{said}: {steps} steps redone, {_all([trial.gap for trial in back])} ms."


def _median(gaps: list[Gap]) -> str:
    return f"{statistics.median(gap.downtime_ms for gap in gaps):.0f}" if gaps else "-"


def _all(gaps: list[Gap]) -> str:
    """Say each, or between which they are if there are many."""
    times = [gap.downtime_ms for gap in gaps]
    if len(times) > MANY:
        return f"{min(times):.0f} to {max(times):.0f}, {len(times)} of them"
    return ", ".join(f"{one:.0f}" for one in times)


def raw(measured: Measured) -> dict[str, dict[str, list[dict[str, object]]]]:
    """Every trial as it was."""
    return {
        "trainmover": {kind: [asdict(t) for t in ts] for kind, ts in measured.ours.items()},
        "on gloo": {kind: [asdict(t) for t in ts] for kind, ts in measured.on_gloo.items()},
        "torchrun": {kind: [asdict(gap) for gap in gs] for kind, gs in measured.torchrun.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
