"""torch.compile: whether it is loaded, what it has made, and where that lies.

It is loaded when a script, or torch itself, first asks for it; nothing here loads it before.
"""

import os
import sys
from pathlib import Path

import torch

COMPILES = os.path.join("torch", "_dynamo", "convert_frame.py")
"""End of the path of the file that is at work where a thread compiles."""

WORKER = "torch._inductor"
"""In the command of its processes, which serve this process and not one run of the script."""

_CACHE = "torch._inductor.runtime.cache_dir_utils"


def is_loaded() -> bool:
    """Whether anything can have been compiled."""
    return "torch._dynamo" in sys.modules


def graphs() -> int:
    """How many graphs this process has compiled, as torch counts them."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


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
    if is_loaded():
        torch.compiler.reset()
