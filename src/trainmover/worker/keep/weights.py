# SPDX-License-Identifier: Apache-2.0
"""What a rank's process holds in memory, by kind.

    state         tracked bulk state: training's own
    gradients     of the tracked modules: training's own
    snapshot      newest state of all that the job can go back to
    record        of the first steps, and what was compiled in them, kept for standbys
    communicator  memory that this process writes and its neighbours read

Copies of what the script holds, kept for a retry, count for none. What gloo takes is not known.
"""

import os
from collections.abc import Callable
from pathlib import Path

from torch import nn

from trainmover.ids import Rank
from trainmover.protocol.messages import Weighed, WorkerFact
from trainmover.state.tensor_bytes import size_of
from trainmover.state.tracked import Tracked

_STATUS, _MAPS = Path("/proc/self/status"), Path("/proc/self/maps")
_FILES = Path("/proc/self/fd")
_ARENA = "/memfd:trainmover"
_BLOCK_BYTES = 512


class Weights:
    """Says what a rank holds. due: at the next chance. state: its bytes, None before that."""

    def __init__(self, rank: Rank, say: Callable[[WorkerFact], None]) -> None:
        self.due = False
        self.state: int | None = None
        self._rank = rank
        self._say = say

    def weigh(self, tracked: Tracked, **others: int) -> None:
        """Say it. others: kinds that the caller knows; what is empty is left out."""
        self.due = False
        _, tensors = tracked.bulk_header()
        self.state = sum(tensor.nbytes for tensor in tensors)
        kinds = {
            "state": self.state,
            "gradients": _gradients(tracked),
            **others,
            "communicator": arena_bytes(),
        }
        rss, peak = resident()
        held = {kind: count for kind, count in kinds.items() if count}
        self._say(Weighed(rank=self._rank, kinds=held, rss=rss, peak=peak))


def _gradients(tracked: Tracked) -> int:
    modules = [obj for _, obj in tracked.items() if isinstance(obj, nn.Module)]
    parameters = {id(one): one for module in modules for one in module.parameters()}
    return sum(size_of(one.grad) for one in parameters.values() if one.grad is not None)


def resident() -> tuple[int, int]:
    """Bytes of this process in memory: now, and the most since it began."""
    lines = (line.split() for line in _STATUS.read_text().splitlines())
    found = {line[0]: int(line[1]) * 1024 for line in lines if line[0] in ("VmRSS:", "VmHWM:")}
    return found["VmRSS:"], found["VmHWM:"]


def arena_bytes() -> int:
    """What is in use of the memory that the native communicator writes to.

    Far more is mapped, and neighbours' memory as well: that is read only.
    """
    fields = [line.split() for line in _MAPS.read_text().splitlines() if _ARENA in line]
    own = {(_device(field[3]), int(field[4])) for field in fields if field[1].startswith("rw")}
    files: dict[tuple[int, int], int] = {}
    for name in os.listdir(_FILES) if own else []:
        try:
            found = os.stat(_FILES / name)
        except OSError:
            continue  # The one that listed them.
        if (found.st_dev, found.st_ino) in own:
            files[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK_BYTES
    return sum(files.values())


def _device(written: str) -> int:
    major, minor = (int(number, 16) for number in written.split(":"))
    return os.makedev(major, minor)
