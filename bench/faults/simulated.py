# SPDX-License-Identifier: Apache-2.0
"""How quick the simulator is: `trainmover simulate`, as anybody runs it."""

import json
import statistics
import subprocess
import sys
import time

STARTS = 5
SIMULATE = [sys.executable, "-m", "trainmover", "simulate"]


def incidents_s(seeds: int) -> float:
    """Simulated incidents per second of one core. Raises RuntimeError on a violation."""
    done = subprocess.run(
        [*SIMULATE, "--seeds", f"0..{seeds}", "--json"], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"the simulator found something: {done.stdout[-2000:]}{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1])["incidents_per_s"])


def start_s(starts: int = STARTS) -> float:
    """Until it can begin, and ends: it is asked for its flags."""
    took_s = []
    for _ in range(starts):
        begun_s = time.monotonic()
        subprocess.run([*SIMULATE, "--help"], capture_output=True, check=True)
        took_s.append(time.monotonic() - begun_s)
    return statistics.median(took_s)
