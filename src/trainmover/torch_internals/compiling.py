"""torch.compile: what it looks into, what it has made, and where that lies.

torch loads it for the first optimizer that a script makes, which takes seconds of a processor. So
it is loaded here, once for all workers that a machine's nursery forks.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch._dynamo.trace_rules
import torch._dynamo.utils

COMPILES = os.path.join("torch", "_dynamo", "convert_frame.py")
"""End of the path of the file that is at work where a thread compiles."""

WORKER = "torch._inductor"
"""In the command of its processes, which serve this process and not one run of the script."""

_CACHE = "torch._inductor.runtime.cache_dir_utils"


def leave_out(package: str) -> None:
    """It never compiles that package's functions: they look at addresses, threads and bytes, which
    the tensors that it traces with have not. Where they are called the graph breaks, as at a call
    of torch's own groups."""
    rules: Any = torch._dynamo.trace_rules
    rules.add(package)


def graphs() -> int:
    """How many graphs this process has compiled, as torch counts them."""
    counters: Any = torch._dynamo.utils.counters
    return int(counters["stats"]["unique_graphs"])


def folder() -> Path:
    """Where it keeps what it has compiled."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir()).resolve()


def is_kept(file: str) -> bool:
    """Whether a file lies in that folder. Asked for every file that a script opens."""
    cache = sys.modules.get(_CACHE)
    return cache is not None and file.startswith(os.path.join(cache.cache_dir(), ""))


def forget() -> None:
    """What is compiled in memory; the folder stays."""
    torch.compiler.reset()
