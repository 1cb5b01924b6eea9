"""What passes on stock gloo passes on our groups, whoever carries them, drainable handles included.

Stock gloo's list depends on the size: torch skips some of its tests in small worlds. The lists are
of torch 2.13; on another torch, stock gloo runs first.
"""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EVERYTHING = "^test_"
CALLS = "^test_(?!.*(Parallel|ddp|DDP|no_sync|profiler|static_graph))"
"""What a communicator does differently in worlds of different sizes; the rest runs once."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("comm", "kind", "size", "wanted"),
    [
        pytest.param("gloo", "watched", 4, EVERYTHING, marks=pytest.mark.soak),
        pytest.param("gloo", "watched", 2, CALLS, marks=pytest.mark.soak),
        pytest.param("native", "watched", 4, EVERYTHING, marks=pytest.mark.soak),
        pytest.param("native", "plain", 3, CALLS, marks=pytest.mark.soak),
        pytest.param("native", "watched", 2, CALLS, marks=pytest.mark.turns(8)),
    ],
)
def test_torchs_own_tests_pass_as_on_stock_gloo(
    comm: str, kind: str, size: int, wanted: str
) -> None:
    pytest.importorskip("expecttest")
    ours, log = passed([kind, wanted, "--comm", comm], size)
    missing = {name for name in stock_passes(size, wanted) if re.search(wanted, name)} - ours
    assert not missing, log[-4000:]


def passed(arguments: list[str], size: int) -> tuple[set[str], str]:
    """Names of the tests that passed, and what was said about the others."""
    suite = [sys.executable, str(HERE / "c10d_suite.py"), *arguments, "--size", str(size)]
    cpu_only = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(suite, env=cpu_only, capture_output=True, text=True, check=False)
    return set(ran.stdout.split("\n")), ran.stderr


def stock_passes(size: int, wanted: str) -> set[str]:
    if version("torch").startswith("2.13."):
        return set((HERE / f"stock_gloo_passes_{size}.txt").read_text().split())
    return {name for name in passed(["stock", wanted], size)[0] if name.startswith("test_")}
