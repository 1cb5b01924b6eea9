# SPDX-License-Identifier: Apache-2.0
"""The first fifteen minutes on a GPU: probes first, then two jobs; a verdict for each.

    python -m bench.gpu_first --part A            probes, eight minutes at most
    python -m bench.gpu_first --part B            DDP with a kill, FSDP2 with a move, bit for bit
    python -m bench.gpu_first --stand-in          all of A on the CPU, over the stand-in for NCCL

A bare machine without a network: `python bench/missing.py` says there what its Python lacks. Carry
those wheels, install them with `pip install --no-index --no-deps --target site *.whl`, build the
extension with `python native/backend.py`, and put `site` and `src` on PYTHONPATH. A probe that does
not end within its limit is ended, and the next one runs.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench import gpu, result
from bench.on_gpu.first import PROBES
from bench.on_gpu.team import Found, Plan
from bench.result import Claim

ROOT = Path(__file__).resolve().parents[1]
JOBS = {
    "DDP, killed": ("tests/gpu/test_gpu_jobs.py", "test_kills and replicated"),
    "FSDP2, moved": ("tests/gpu/test_gpu_jobs.py", "test_moves and fsdp2"),
}
PART_S, JOB_S = 480, 200
"""Limits of part A, and of one of these jobs."""
SMOKE = ("context", "idle")


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("gpu_first", __doc__, quick="two probes, over the stand-in")
    parser.add_argument("--part", choices=["A", "B"], help="both, if it is not given")
    parser.add_argument("--stand-in", action="store_true", help="part A on the CPU: no result")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    has_gpu = Path("/dev/nvidia0").exists()
    if flags.quick and not has_gpu:
        flags.stand_in = True
    if flags.probe:
        return _run_here(flags.probe, "cpu" if flags.stand_in else "cuda")
    if not flags.stand_in and not has_gpu:
        parser.error("there is no GPU here; --stand-in shows that the probes work")
    parts = [] if flags.part == "B" else [_probes(flags.stand_in, SMOKE if flags.quick else ())]
    parts += [] if flags.stand_in or flags.part == "A" else [_jobs()]
    claims = [claim for found in parts for claim in found.claims]
    told = [line for found in parts for line in found.table]
    skipped = "there is no GPU here: over the stand-in for NCCL, no result." * flags.stand_in
    return result.say("gpu_first", claims, told, as_json=flags.json, skipped=skipped)


def _probes(stands_in: bool, chosen: tuple[str, ...]) -> Found:
    """Run probes one after the other, each in a process of its own."""
    claims, told, ends_s = [], [], time.monotonic() + PART_S
    for name in chosen or PROBES:
        probe, began = PROBES[name], time.monotonic()
        command = [sys.executable, "-m", "bench.gpu_first", "--probe", name]
        limit_s = min(probe.limit_s, ends_s - began)
        done = _ended(command + ["--stand-in"] * stands_in, limit_s) if limit_s > 0 else None
        told.append(f"## {name}: {probe.shows} ({time.monotonic() - began:.0f} s)")
        if done is None or done.returncode:
            why = "it did not end in time" if done is None else done.stderr[-1500:]
            told.append(why)
        else:
            found = json.loads(done.stdout.splitlines()[-1])
            claims += [Claim(f"{name}: {one}", *rest) for one, *rest in found["claims"]]
            told += found["table"]
        claims.append(Claim(f"{name}: failures", float(done is None or done.returncode), "", 0.0))
    return Found(claims, told)


def _jobs() -> Found:
    """Run the two jobs of part B, by their tests."""
    claims, told = [], []
    for name, (path, chosen) in JOBS.items():
        done = _ended([sys.executable, "-m", "pytest", "-x", "-q", path, "-k", chosen], JOB_S)
        told.append(f"## {name}")
        told += ["it did not end in time"] if done is None else done.stdout.splitlines()[-12:]
        claims.append(Claim(f"{name}: failures", float(done is None or done.returncode), "", 0.0))
    return Found(claims, told)


def _ended(command: list[str], limit_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run it with all that it starts; None: it was ended at its limit."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN"}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _run_here(name: str, device: str) -> int:
    """Run one probe in this process, and print what it has found as one line."""
    with gpu.environment(Plan(device, quick=True)):
        found = PROBES[name].run(device)
    claims = [(one.claim, one.value, one.unit, one.most) for one in found.claims]
    print(json.dumps({"claims": claims, "table": found.table}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
