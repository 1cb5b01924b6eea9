# SPDX-License-Identifier: Apache-2.0
"""C: whole jobs, moved and killed, beside torchrun with the same model and the same trick."""

import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import ours_arm
from bench.gaps import Gap
from bench.on_gpu.team import Found, Plan
from bench.ours_arm import Arm, Trial, Wanted
from bench.result import Claim
from bench.torchrun_arm import torchrun_job
from trainmover.communicators import NCCL, default
from trainmover.controller.state import Kind

ROOT = Path(__file__).resolve().parents[2]
KILLED_S_MOST = 1.0
MODEL = ["--steps", "1000000", "--log-every", "1000000"]


def tests_pass(path: str, *chosen: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path, *chosen]
    return subprocess.run(command, cwd=ROOT, check=False, stdout=sys.stderr).returncode == 0


def equal(names: str) -> Callable[[Plan], Found]:
    """C1, C2: those scripts moved, and killed in every place of a step, bit for bit."""

    def part(plan: Plan) -> Found:
        path = (
            "tests/e2e/groups/test_e2e_nccl.py" if plan.stands_in else "tests/gpu/test_gpu_jobs.py"
        )
        failed = not tests_pass(path, "-k", names)
        return Found([Claim(f"{names}: tests that fail", float(failed), "", 0.0)])

    return part


def downtimes(plan: Plan) -> Found:
    """C3: how long a job stands still, beside torchrun that reads a checkpoint."""
    ours: list[Trial] = []
    theirs: dict[Kind, list[Gap]] = {kind: [] for kind in Kind}
    on = ["--device", plan.device, "--backend"]
    for _ in range(plan.among(1, 3)):
        with torchrun_job([*MODEL, *on, "gloo" if plan.stands_in else "nccl"]) as job:
            theirs[Kind.RECOVERY].append(job.unplanned())
            theirs[Kind.MOVE].append(job.planned())
        script = Path(__file__).with_name("gpt.py")
        arm = Arm([*MODEL, *on, "nccl"], default(), script=script, gpu_comm=NCCL)
        ours += ours_arm.run([Wanted(Kind.MOVE), Wanted(Kind.RECOVERY)], arm).trials
    table = ["| ms, medians | trainmover | of that state | connect | first step | torchrun |"]
    table += ["|---|---|---|---|---|---|"]
    for kind, name in ((Kind.RECOVERY, "a machine killed"), (Kind.MOVE, "a planned move")):
        mine = [trial for trial in ours if trial.kind is kind]
        cells = [
            median([trial.gap.downtime_ms for trial in mine]),
            median([trial.state_ms for trial in mine]),
            median([trial.connect_ms for trial in mine]),
            median([trial.first_step_ms for trial in mine]),
            median([gap.downtime_ms for gap in theirs[kind]]),
        ]
        table.append(f"| {name} | {' | '.join(f'{cell:.0f}' for cell in cells)} |")
    killed = [trial.gap.downtime_ms for trial in ours if trial.kind is Kind.RECOVERY]
    claims = [
        Claim("a kill to the first step", median(killed) / 1e3, "s", KILLED_S_MOST),
        Claim(
            "steps redone, median", statistics.median(trial.redone for trial in ours), "steps", 0
        ),
    ]
    raw = {
        "trainmover": [(trial.kind, trial.gap.downtime_ms) for trial in ours],
        "torchrun": [(kind, gap.downtime_ms) for kind, gaps in theirs.items() for gap in gaps],
    }
    return Found(claims, table, raw)


def median(numbers: Sequence[float]) -> float:
    return statistics.median(numbers)
