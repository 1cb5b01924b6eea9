"""Machines on hosts of their own, whose network fails. See `links.py`."""

import subprocess
import sys
from pathlib import Path

import pytest
from links import FAULTS

LINKS = Path(__file__).with_name("links.py")
WHY = "from chaos_net import why_none; print(why_none())"


@pytest.fixture(scope="module")
def own_network() -> None:
    """Asked in a process of its own: to look makes a network, and unmakes it."""
    done = subprocess.run(
        [sys.executable, "-c", WHY], capture_output=True, text=True, cwd=LINKS.parent, check=True
    )
    if reason := done.stdout.strip():
        pytest.skip(f"no hosts with a network of ours: {reason}")


@pytest.mark.soak
@pytest.mark.usefixtures("own_network")
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_the_job_comes_through(fault: str) -> None:
    command = [sys.executable, str(LINKS), fault]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
