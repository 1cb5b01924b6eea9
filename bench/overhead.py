# SPDX-License-Identifier: Apache-2.0
"""What does trainmover cost while nothing happens? The same script under both, in turns.

    python -m bench.overhead            three runs of each
    python -m bench.overhead --quick    one run of each

examples/gpt.py on this host, plain gloo: under `trainmover run` with one machine a rank (gates,
records and journal included), the same with --tls, and under torchrun. The script itself takes the
time of its steps, in all alike. A step takes 50 ms or more, as steps do. One rank a core: where
ranks share cores, what trainmover computes comes out of the step itself; --ranks 4 on two cores
shows how much.

How much that is is measured inside the ranks as well (`own_cost`): our time on the main thread by
that thread's clock, our Python calls, and what all threads take more than under torchrun, for the
example, for the same in small, and for a model of 160 modules. Whatever a batch holds beyond a
megabyte is hashed off the main thread, so it is in the last number alone.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import own_cost, result
from bench.gaps import Mark, median_step_ms

OVERHEAD_MOST = 1.03
STEP_MS_LEAST = 50.0
RANKS = max(2, min(4, os.cpu_count() or 2))
ROOT = Path(__file__).resolve().parents[1]
QUICK_STEPS, SMOKE_STEPS = 80, 12
IN_TLS = "trainmover --tls"
ARMS = ("torchrun", "trainmover", IN_TLS)


def starter(arm: str, ranks: int) -> list[str]:
    """Module and flags that start the script on so many ranks."""
    if arm == "torchrun":
        return ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    tls = ["--tls"] if arm == IN_TLS else []
    return ["trainmover.cli.main", "run", f"--machines={ranks}", *tls]


def main() -> int:
    """Exit status 0 if the claim holds."""
    parser = result.parser("overhead", __doc__, quick="one short run of each")
    parser.add_argument("--runs", type=int, default=3, help="of each (3)")
    parser.add_argument("--steps", type=int, default=150, help="of each run (150)")
    parser.add_argument("--ranks", type=int, default=RANKS, help=f"ranks ({RANKS})")
    parser.add_argument("--batch", type=int, default=16, help="of each rank (16)")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.steps = 1, QUICK_STEPS
    arms: tuple[str, ...] = ARMS
    own_arms: Sequence[own_cost.Arm] = own_cost.ARMS
    if options.smoke:
        first, small, *_ = own_cost.ARMS
        arms, own_arms = (), [replace(small, ms=first.ms, calls=first.calls)]
        options.steps, options.ranks = SMOKE_STEPS, 1
    step_ms: dict[str, list[float]] = {arm: [] for arm in arms}
    loads = []
    for turn in range(options.runs):
        # The other goes first in every second turn: neither always meets a machine that is warm.
        for arm in arms[:: -1 if turn % 2 else 1]:
            size = ["--steps", str(options.steps), "--batch", str(options.batch)]
            step_ms[arm].append(timed(starter(arm, options.ranks), size))
            loads.append(os.getloadavg()[0])
            said = f"{arm:<17}{step_ms[arm][-1]:7.2f} ms a step, load {loads[-1]:.1f}"
            print(said, file=sys.stderr, flush=True)
    steps = options.steps // 2 if options.quick else options.steps
    costs = own_costs(own_arms, options.ranks, steps)
    loads.append(os.getloadavg()[0])
    claims = [*judge(step_ms), *own_cost.judge(costs)]
    table = [*tabulated(step_ms), "", *own_cost.tabulated(costs)]
    where = result.setting(loads)
    raw = {"step_ms": step_ms, "own": own_cost.raw(costs)}
    path = result.write("overhead", claims, table, where, raw, quick=options.quick)
    return result.say("overhead", claims, [*table, f"written to {path}"], as_json=options.json)


def own_costs(arms: Sequence[own_cost.Arm], ranks: int, steps: int) -> own_cost.Costs:
    """Of every script inside the ranks."""
    ours, bare = starter("trainmover", ranks), starter("torchrun", ranks)
    return {arm: own_cost.measured(arm, ours, bare, steps) for arm in arms}


def timed(started_by: Sequence[str], size: Sequence[str]) -> float:
    """Median milliseconds of a step of one run. Raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory(prefix="bench-overhead-") as here:
        script = str(ROOT / "bench" / "timed_gpt.py")
        own_cost.launch([*started_by, script, *size, "--log-every", "1000"], here)
        lines = [
            line for path in Path(here).glob("steps.*") for line in path.read_text().splitlines()
        ]
    return median_step_ms(Mark(*map(int, line.split())) for line in lines)


def judge(step_ms: dict[str, list[float]]) -> list[result.Claim]:
    if not step_ms:
        return []
    ratio = median_ratio(step_ms, "trainmover", "torchrun")
    short = STEP_MS_LEAST / min(step_ms["torchrun"])
    return [
        result.Claim("median step / torchrun's", ratio, "ratio", OVERHEAD_MOST),
        result.Claim("50 ms / torchrun's step (is the step long enough?)", short, "ratio", 1.0),
    ]


def median_ratio(step_ms: dict[str, list[float]], ours: str, theirs: str) -> float:
    """Of each turn's pair, so that a change of load between turns does not count."""
    pairs = zip(step_ms[ours], step_ms[theirs], strict=True)
    return statistics.median(mine / other for mine, other in pairs)


def tabulated(step_ms: dict[str, list[float]]) -> list[str]:
    """Medians of the runs as a table."""
    lines = ["| median step, ms | of the runs | each run |", "|---|---|---|"]
    for arm, values in step_ms.items():
        each = ", ".join(f"{value:.1f}" for value in values)
        lines.append(f"| {arm} | {statistics.median(values):.1f} | {each} |")
    if IN_TLS not in step_ms:
        return lines
    in_tls = median_ratio(step_ms, IN_TLS, "trainmover")
    lines += [
        "",
        f"A step with --tls / without: {in_tls:.3f}. The ranks share a host, so what they",
    ]
    lines += ["exchange is plain memory in both: `bench.collectives --only codes` has it over TCP."]
    return lines


if __name__ == "__main__":
    sys.exit(main())
