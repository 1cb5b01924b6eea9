"""What passes on stock gloo passes on our groups, whoever carries them, drainable handles included.

Stock gloo's list depends on the size: torch skips some of its tests in small worlds.
"""

import re
import subprocess
import sys
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
        ("gloo", "watched", 2, CALLS),
        ("native", "watched", 4, EVERYTHING),
        ("native", "plain", 3, CALLS),
        ("native", "plain", 2, CALLS),
    ],
)
def test_torchs_own_tests_pass_as_on_stock_gloo(
    comm: str, kind: str, size: int, wanted: str
) -> None:
    pytest.importorskip("expecttest")
    suite = [sys.executable, str(HERE / "c10d_suite.py"), "--comm", comm, "--size", str(size)]
    ran = subprocess.run([*suite, kind, wanted], capture_output=True, text=True, check=False)
    stock = (HERE / f"stock_gloo_passes_{size}.txt").read_text().split()
    missing = {name for name in stock if re.search(wanted, name)} - set(ran.stdout.split())
    assert not missing, ran.stderr[-4000:]
