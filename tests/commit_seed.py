"""What tests go by that are others from commit to commit."""

import os
import subprocess
from functools import cache
from pathlib import Path

SEED = "TRAINMOVER_TEST_SEED"


@cache
def seed() -> str:
    """The environment's, so that a run can be had again; else the commit."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    folder = Path(__file__).parent
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return os.environ.get(SEED) or done.stdout.strip() or "no commit"
