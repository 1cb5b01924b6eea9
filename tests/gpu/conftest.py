"""Tests that need a GPU; without one they are skipped, and say so.

They use what the tests of groups and of whole jobs use, on another device.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("comm", "comm/nccl", "e2e")]

from comm_ranks import comm, ranks  # noqa: E402  found by the line above

__all__ = ["comm", "ranks"]
