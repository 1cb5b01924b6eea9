# SPDX-License-Identifier: Apache-2.0
"""torch.compile: what it looks into, what it has made, and where that lies.

torch loads it for the first optimizer that a script makes, which takes seconds of a processor. So
it is loaded here, once for all workers that a machine's fork server forks.
"""

import functools
import itertools
import os
import sys
import tempfile
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
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
"""Names its folder: in the user's environment, or put there when torch first needs it."""


@functools.cache
def leave_us_out() -> None:
    """It never compiles functions of this package: they look at addresses, threads and bytes, which
    the tensors that it traces with have not. Where they are called the graph breaks, as at a call
    of torch's own groups. It takes a hundredth of a second, once: who is forked has it done."""
    rules: Any = torch._dynamo.trace_rules
    rules.add(__name__.partition(".")[0])


def graphs() -> int:
    """How many graphs this process has compiled, as torch counts them."""
    counters: Any = torch._dynamo.utils.counters
    return int(counters["stats"]["unique_graphs"])


def folder() -> Path:
    """Where it keeps what it has compiled."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir()).resolve()


def artifacts_in(data: bytes) -> Any:
    """What `torch.compiler.save_cache_artifacts` has packed; `load` takes it. Runs nothing of it.

    Raises ValueError for anything else, and where a key would lead out of the folder.
    """
    from torch.compiler._cache import CacheArtifactManager

    found = CacheArtifactManager.deserialize(data)
    if found is None:
        raise ValueError("torch cannot read it")
    for artifact in itertools.chain.from_iterable(found.values()):
        parts = Path(artifact.key).parts
        if not parts or parts[0] == os.sep or ".." in parts or "\0" in artifact.key:
            raise ValueError(f"{artifact.key!r} leads out of the cache")
    return found


def load(artifacts: Any) -> None:
    """Put them into the folder. They are code, and run here: this may raise anything."""
    from torch.compiler._cache import CacheArtifactManager

    CacheArtifactManager.populate_caches(artifacts)


def is_kept(file: str) -> bool:
    """Whether a file lies in that folder. Asked for every file that a script opens, in the middle
    of whoever opens it: takes no lock and, unlike `folder`, changes nothing."""
    cache, named = sys.modules.get(_CACHE), os.environ.get(_FOLDER)
    if named is None and cache is not None and tempfile.tempdir is not None:
        named = cache.default_cache_dir()  # Without `tempdir` it would look for one, under a lock.
    return named is not None and file.startswith(os.path.join(os.path.abspath(named), ""))


def forget() -> None:
    """What is compiled in memory; the folder stays."""
    torch.compiler.reset()
