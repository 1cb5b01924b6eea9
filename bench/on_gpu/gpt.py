# SPDX-License-Identifier: Apache-2.0
"""examples/gpt.py on a GPU that all ranks share: each passes for a host of its own."""

import os
import sys
from pathlib import Path

os.environ["NCCL_HOSTID"] = f"one-gpu-{os.getpid()}"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples import gpt

gpt.main()
