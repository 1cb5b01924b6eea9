# SPDX-License-Identifier: Apache-2.0
"""Our collectives beside torch's gloo and Open MPI, all in one sitting.

    python -m bench.collectives            ten rounds, up to 160 processes, about twenty minutes
    python -m bench.collectives --quick    a look, under a minute and a half

calls       all_reduce of 8 B to 64 MiB with 2 and 4 ranks over shared memory and loopback TCP, and
            the other operations. The arms take turns in every round.
switchover  one seat of N given to another process, in G groups.
shim        what dist.all_reduce costs above our library.
codes       what the codes of frames cost, and --tls.
scale       8 B to and from up to 160 seats; seats that share hosts and seats that do not.
abort       one of four ranks killed or stopped in the middle of an all_reduce.

Every figure is of the slowest rank. What makes the comparison kind to the others: gloo is called
below torch.distributed's own layers, Open MPI from C and with its processes pinned as it likes,
while ours is called from Python; see the modules of this folder.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import result
from bench.collectives import (
    abort,
    calls,
    claims,
    codes,
    openmpi,
    picture,
    scale,
    shim,
    switchover,
    tables,
)
from bench.collectives.arms import OPERATIONS
from bench.collectives.calls import CLAIMED, KIB, MIB
from bench.collectives.tables import Table

OTHERS = tuple(name for name in OPERATIONS if name != "all_reduce")
PARTS = ("calls", "switchover", "shim", "codes", "abort", "scale")


@dataclass(frozen=True)
class Plan:
    calls: calls.Plan
    switchover: switchover.Plan
    shim_rounds: int
    codes: codes.Plan
    abort: abort.Plan
    scale: scale.Plan


FULL = Plan(
    calls.Plan(10, (2, 4), (8, KIB, 64 * KIB, MIB, 8 * MIB, 64 * MIB), OTHERS, (64, 64 * KIB, MIB)),
    switchover.Plan(5, 3, (4, 8, 16, 32, 64), (1, 4, 16)),
    10,
    codes.Plan(40, (8, 64 * KIB, MIB, 8 * MIB)),
    abort.Plan(20, 3),
    scale.Plan(5, (80, 160), (32, 8), 512 * KIB),
)
QUICK = Plan(
    calls.Plan(4, (2, 4), CLAIMED, OTHERS, (64 * KIB,), budget_s=40),
    switchover.Plan(3, 1, (4, 16), (1, 4)),
    3,
    codes.Plan(15, (8, 64 * KIB, MIB)),
    abort.Plan(8, 1),
    scale.Plan(1, (40,), (16, 4), 128 * KIB),
)
SMOKE = Plan(
    calls.Plan(2, (2,), (8, 64 * KIB), OTHERS, (64,)),
    switchover.Plan(1, 1, (4,), (1,)),
    1,
    codes.Plan(1, (8, MIB)),
    abort.Plan(1, 0),
    scale.Plan(1, (4,), (4, 2), KIB),
)


@dataclass
class Report:
    """What the parts that ran have to say."""

    claims: list[result.Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    times: calls.Times = field(default_factory=dict)


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("collectives", __doc__, quick="few trials; no claim to be stable")
    parser.add_argument("--rounds", type=int, help="of the calls (10)")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; repeatable")
    options = parser.parse_args()
    plan = SMOKE if options.smoke else QUICK if options.quick else FULL
    if options.rounds:
        plan = with_rounds(plan, options.rounds)
    report = Report()
    for part in options.only or PARTS:
        RUN[part](plan, report)
    path = written(report, quick=options.quick)
    text = [line for table in report.tables for line in table.screen()]
    text += [*report.notes, f"written to {path}"]
    return result.say("collectives", report.claims, text, as_json=options.json)


def written(report: Report, *, quick: bool) -> Path:
    """The result's Markdown; the raw figures and the picture lie with the raw data."""
    lines = [line for table in report.tables for line in table.markdown()]
    where = result.setting(report.loads)
    lines += report.notes
    path = result.write("collectives", report.claims, lines, where, report.raw, quick=quick)
    if report.times:
        picture.draw(result.TEMPORARY / f"{path.stem}.png", report.times)
    return path


def with_rounds(plan: Plan, rounds: int) -> Plan:
    return replace(plan, calls=replace(plan.calls, rounds=rounds))


def run_calls(plan: Plan, report: Report) -> None:
    done = calls.run(plan.calls)
    report.claims += claims.of_calls(done.times)
    report.tables += tables.of_calls(done)
    report.loads += done.loads
    report.times = done.times
    version = openmpi.version()
    note = f"{done.why_no_mpi}: it is not in the comparison." if done.why_no_mpi else f"{version}."
    report.notes.append(note)
    report.raw["calls"] = [
        asdict(cell) | {"rounds": [asdict(spent) for spent in rounds]}
        for cell, rounds in done.times.items()
    ]


def run_switchover(plan: Plan, report: Report) -> None:
    done = switchover.run(plan.switchover)
    report.claims += claims.of_switchovers(done)
    report.tables += tables.of_switchovers(done)
    report.loads += done.loads
    report.raw["switchover"] = [
        asdict(case)
        | {"middle": [asdict(one) for one in done.middle[case]]}
        | {"worst": [asdict(one) for one in done.worst[case]]}
        for case in done.middle
    ]
    report.notes += [
        f"{case.arm} with {case.processes} processes and {case.groups} groups: {why}."
        for case, why in done.left_out.items()
    ]


def run_shim(plan: Plan, report: Report) -> None:
    done = shim.run(plan.shim_rounds)
    report.claims += claims.of_shim(done)
    report.tables += tables.of_shim(done)
    report.loads += done.loads
    report.raw["shim"] = {way: [asdict(one) for one in times] for way, times in done.times.items()}


def run_codes(plan: Plan, report: Report) -> None:
    done = codes.run(plan.codes)
    report.claims += claims.of_codes(done)
    report.tables += tables.of_codes(done)
    report.loads += done.loads
    report.raw["codes"] = [
        {"size_bytes": size, "way": way, "rounds": [asdict(spent) for spent in rounds]}
        for (size, way), rounds in done.times.items()
    ]


def run_abort(plan: Plan, report: Report) -> None:
    done = abort.run(plan.abort)
    report.claims += claims.of_aborts(done)
    report.tables += tables.of_aborts(done)
    report.loads += done.loads
    report.raw["abort"] = [
        {"arm": arm, "kind": kind, "trials": [asdict(trial) for trial in trials]}
        for (arm, kind), trials in done.trials.items()
    ]


def run_scale(plan: Plan, report: Report) -> None:
    done = scale.run(plan.scale)
    report.claims += claims.of_scale(done)
    report.tables += tables.of_scale(done)
    report.loads += done.loads
    report.raw["scale"] = [
        asdict(case) | {"rounds": [asdict(spent) for spent in rounds]}
        for case, rounds in done.times.items()
    ]


RUN: dict[str, Callable[[Plan, Report], None]] = {
    "calls": run_calls,
    "switchover": run_switchover,
    "shim": run_shim,
    "codes": run_codes,
    "abort": run_abort,
    "scale": run_scale,
}

if __name__ == "__main__":
    sys.exit(main())
