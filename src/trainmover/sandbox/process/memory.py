# SPDX-License-Identifier: Apache-2.0
"""How much memory a run of the script takes, and how much of the host's a machine has left."""

from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch

_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
GIB = 1024**3


def private_bytes() -> int:
    """Memory that is this process's alone and not a file's, in RAM now."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)


def device_bytes() -> int:
    """Memory of GPUs that torch's allocator has taken in this process. What CUDA itself takes for a
    process, some hundred megabytes, comes on top of it."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    return sum(map(torch.cuda.memory_reserved, range(torch.cuda.device_count())))


def left_bytes() -> int:
    """What processes here may still take: of the host, or of the container if that has less."""
    left = int(psutil.virtual_memory().available)
    for limit, used, cache in _limits():
        left = min(left, max(0, limit - (used - cache)))
    return left


def too_little(needed: int, *, held: int, left: int, processes: int) -> str:
    """Why `processes` that hold `held` bytes each cannot grow to `needed`; "" if they can."""
    missing = max(0, needed - held) * processes
    if missing <= left:
        return ""
    ranks = "" if processes == 1 else f" for its {processes} ranks"
    return (
        f"the role needs {missing / GIB:.1f} GiB of memory more than is in use{ranks}, "
        f"and this machine has {left / GIB:.1f} GiB left"
    )


def _limits() -> list[tuple[int, int, int]]:
    """Of every control group above this process: limit, use, what of it can be given back."""
    found = []
    for folder in _groups():
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            found.append((limit, used, _reclaimable(folder)))
    return found


def _groups() -> list[Path]:
    """Folders of this process's memory control group and of those above it, v2 or v1."""
    folders = []
    for line in _lines(_OWN_GROUPS):
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            root = _CGROUP if controllers == "" else _CGROUP / "memory"
            here = root / path.lstrip("/")
            folders += [f for f in (here, *here.parents) if f == root or root in f.parents]
    return folders


def _reclaimable(folder: Path) -> int:
    names = ("inactive_file", "active_file")
    pairs = (line.split() for line in _lines(folder / "memory.stat"))
    return sum(int(value) for name, value in pairs if name in names)


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
