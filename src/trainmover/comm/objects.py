# SPDX-License-Identifier: Apache-2.0
"""Objects that ranks sent each other between two steps, for a run that comes by later.

The job has made those calls long ago. What a script makes of an object must not count: tracked
state is taken on arrival, variables are compared there. But it must be of the kind that the script
expects. So of those that all ranks give, each is this rank's own (`Silence`); of those that only
others give, it is the newest that came at the same line: to this run, else to the rank whose place
it takes, in whose record they are.
"""

import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from trainmover.comm.meet.places import line_of_script
from trainmover.errors import StateMismatch
from trainmover.torch_internals.tensors import numpy_of

KEPT_MAX = 8
"""Objects of a line: as many calls as a run may come by."""
BYTES_MAX = 16 * 1024
"""What is larger does not go with a record."""
_OF_ALL = frozenset({"all_gather_object", "gather_object"})

Pickled = tuple[Tensor, int]


class Objects:
    """Of one run, by line of the script. Main thread only: what comes to others is not kept."""

    def __init__(self) -> None:
        self._came: dict[str, deque[Pickled]] = defaultdict(lambda: deque(maxlen=KEPT_MAX))
        self._kept: list[tuple[str, bytes]] | None = []

    def came(self, pickled: Tensor, size: int) -> None:
        """One more, at this line."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._came[line_of_script()].append((pickled.clone(), size))
        self._kept = None

    def once_more(self) -> Pickled:
        """One that came here, in their order. Raises StateMismatch if none did."""
        line = line_of_script()
        came = self._came.get(line)
        if not came:
            raise StateMismatch(
                f"Nobody keeps the object that another rank has sent at {line} before.",
                means="On its way to where a rank stood the script cannot do without one here.",
                do="Send tensors there, or use all_gather_object: then an own object can stand for "
                "those of others.",
            )
        came.rotate(-1)
        return came[-1]

    def kept(self) -> list[tuple[str, bytes]]:
        """For the rank's record: line and pickled bytes of the small ones, oldest first."""
        if self._kept is None:
            # Of copies: what numpy() has shown can never be resized again, which is torch's to do.
            self._kept = [
                (line, numpy_of(pickled.reshape(-1)[:size].clone()).tobytes())
                for line, objects in self._came.items()
                for pickled, size in objects
                if size <= BYTES_MAX
            ]
        return self._kept

    def stand_with(self, kept: Iterable[tuple[str, bytes]]) -> None:
        """Out of the record of the rank whose way this run goes: where none came to it itself."""
        known = set(self._came)
        for line, pickled in kept:
            if pickled and line not in known:
                tensor = torch.frombuffer(bytearray(pickled), dtype=torch.uint8)
                self._came[line].append((tensor, len(pickled)))
        self._kept = None

    def forget(self) -> None:
        """The run is over."""
        self._came.clear()
        self._kept = []


def goes_with_record(size: int) -> bool:
    """Whether an object of so many bytes that comes to a live rank is kept for its record: a small
    one, and the call of torch's that asks is for what one rank gives, and not all."""
    return size <= BYTES_MAX and sys._getframe(2).f_code.co_name not in _OF_ALL


def under_way() -> bool:
    """Whether it is a call of torch's for objects that asks: sizes in it are not set yet."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        code = frame.f_code
        if code.co_filename == c10d.__file__ and code.co_name.endswith("object_list"):
            return True
        frame = frame.f_back
    return False
