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
from dataclasses import asdict, dataclass, field

from bench import ours_arm, result
from bench.gaps import Gap
from bench.torchrun_arm import torchrun_job
from trainmover import communicators
from trainmover.controller.state import Kind

UNPLANNED_MOST = 1 / 15
PLANNED_MOST = 1 / 30
JOB_ARGS = ["--steps", "1000000", "--log-every", "1000000"]


@dataclass
class Measured:
    """Downtimes in milliseconds, in the order they were measured."""

    ours: dict[Kind, list[ours_arm.Trial]] = field(default_factory=lambda: {k: [] for k in Kind})
    on_gloo: dict[Kind, list[ours_arm.Trial]] = field(default_factory=lambda: {k: [] for k in Kind})
    torchrun: dict[Kind, list[Gap]] = field(default_factory=lambda: {k: [] for k in Kind})
    loads: list[float] = field(default_factory=list)

    def run_torchrun(self, kinds: list[Kind]) -> None:
        with torchrun_job(JOB_ARGS) as job:
            for kind in kinds:
                gap = job.planned() if kind is Kind.MOVE else job.unplanned()
                self.torchrun[kind].append(gap)
                self._said("torchrun", kind, gap)

    def run_ours(self, kinds: list[Kind]) -> None:
        for trial in ours_arm.trials(kinds, JOB_ARGS, communicators.default()):
            self.ours[trial.kind].append(trial)
            self._said("trainmover", trial.kind, trial.gap)

    def run_on_gloo(self, kinds: list[Kind]) -> None:
        for trial in ours_arm.trials(kinds, JOB_ARGS, "gloo"):
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
    parser = result.parser("downtime", __doc__)
    parser.add_argument("--quick", action="store_true", help="few trials; no claim to be stable")
    parser.add_argument("--trials", type=int, default=5, help="of each kind and arm (5)")
    options = parser.parse_args()
    measured = quick() if options.quick else full(options.trials)
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
        measured.run_ours([Kind.MOVE, Kind.RECOVERY])
        measured.run_on_gloo([Kind.MOVE, Kind.RECOVERY])
    return measured


def quick() -> Measured:
    """One job of each arm, with one incident of each kind; ours with two."""
    measured = Measured()
    measured.run_torchrun([Kind.RECOVERY, Kind.MOVE])
    measured.run_ours([Kind.MOVE, Kind.MOVE, Kind.RECOVERY, Kind.RECOVERY])
    measured.run_on_gloo([Kind.MOVE, Kind.RECOVERY])
    return measured


def judge(measured: Measured) -> list[result.Claim]:
    """The claims with what was measured."""
    unplanned = measured.ours_ms(Kind.RECOVERY) / measured.torchrun_ms(Kind.RECOVERY)
    planned = measured.ours_ms(Kind.MOVE) / measured.torchrun_ms(Kind.MOVE)
    lost = max(t.gap.steps_lost for trials in measured.ours.values() for t in trials)
    return [
        result.Claim("unplanned downtime / torchrun's", unplanned, "ratio", UNPLANNED_MOST),
        result.Claim("planned downtime / torchrun's", planned, "ratio", PLANNED_MOST),
        result.Claim("steps lost", lost, "steps", 0),
    ]


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
        redone = f"{max(g.steps_lost for g in ours)} / {max(g.steps_lost for g in theirs)}"
        lines.append(f"| {name} | {' | '.join(cells)} | {redone} |")
    return lines


def _median(gaps: list[Gap]) -> str:
    return f"{statistics.median(gap.downtime_ms for gap in gaps):.0f}"


def _all(gaps: list[Gap]) -> str:
    return ", ".join(f"{gap.downtime_ms:.0f}" for gap in gaps)


def raw(measured: Measured) -> dict[str, dict[str, list[dict[str, object]]]]:
    """Every trial as it was."""
    return {
        "trainmover": {kind: [asdict(t) for t in ts] for kind, ts in measured.ours.items()},
        "on gloo": {kind: [asdict(t) for t in ts] for kind, ts in measured.on_gloo.items()},
        "torchrun": {kind: [asdict(gap) for gap in gs] for kind, gs in measured.torchrun.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
