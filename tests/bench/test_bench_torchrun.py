"""The baseline's processes end with the benchmark, also if that is killed."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

STARTS = """
import time
from bench.torchrun_arm import torchrun_job
with torchrun_job(["--steps", "1000000"]) as job:
    print(job.here, flush=True)
    job.wait(lambda marks: bool(marks), 120)
    print("steps", flush=True)
    time.sleep(600)
"""
ROOT = Path(__file__).resolve().parents[2]


def of_job(here: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("BENCH_DIR") == here:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.soak
def test_a_killed_benchmark_leaves_no_process_of_torchrun(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", STARTS]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as bench:
        assert bench.stdout is not None
        here = bench.stdout.readline().strip()
        assert bench.stdout.readline() == "steps\n"
        processes = of_job(here)
        assert len(processes) >= 8
        bench.kill()
    _, alive = psutil.wait_procs(processes, timeout=30)
    for process in alive:
        process.kill()
    assert alive == []
    assert of_job(here) == []
