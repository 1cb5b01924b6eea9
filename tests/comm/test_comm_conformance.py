"""What passes on stock gloo passes on our groups, watched handles included."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.timeout(900)
def test_torchs_own_tests_pass_as_on_stock_gloo() -> None:
    pytest.importorskip("expecttest")
    ran = subprocess.run(
        [sys.executable, str(HERE / "c10d_suite.py"), "watched"],
        capture_output=True,
        text=True,
        check=False,
    )
    stock = set((HERE / "stock_gloo_passes.txt").read_text().split())
    missing = stock - set(ran.stdout.split())
    assert not missing, ran.stderr[-4000:]
