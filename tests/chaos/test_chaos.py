"""Real jobs under random faults: the same bits, no step lost, nothing left behind. See `drive.py`.

A run that fails prints its seed, and the command that makes the same faults again.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVE = Path(__file__).with_name("drive.py")
SOAK_S = 1800


def has_own_network() -> bool:
    """Whether links can be cut here: root, and network namespaces."""
    try:
        done = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"])
    except OSError:
        return False
    return os.getuid() == 0 and done.returncode == 0


def drive(*options: str, within_s: float) -> None:
    own = ["--own-network"] if has_own_network() else []
    command = [sys.executable, str(DRIVE), *options, *own]
    done = subprocess.run(command, capture_output=True, text=True, timeout=within_s)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.turns(8)
def test_some_chaos() -> None:
    drive("--seed", "1", "--seconds", "10", within_s=170)


@pytest.mark.soak
def test_half_an_hour_of_chaos_on_the_demo() -> None:
    drive("--seed", "2", "--seconds", str(SOAK_S), "--demo", within_s=2 * SOAK_S - 100)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 9))
def test_minutes_of_chaos(seed: int) -> None:
    drive("--seed", str(seed), "--seconds", "120", "--stalls", within_s=1500)
