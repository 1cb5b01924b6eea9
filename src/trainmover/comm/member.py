# SPDX-License-Identifier: Apache-2.0
"""This process's seat in one group."""

import itertools
import weakref
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from trainmover.comm.calls.watch import Watch
from trainmover.comm.communicator import Communicator, View
from trainmover.torch_internals.distributed.c10d import Store

_order = itertools.count()


@dataclass(eq=False)
class Member:
    """What the registry knows of one group.

    watch  waits on the session of the current epoch; None while the group is not connected
    order  groups connect in this order on every rank; private ones come first
    number how many groups of the script this process had taken part in before this one
    ranks  who has which seat, in torch's numbers; () when that is not known
    inside whether all of them are ranks of this machine
    begun  collectives that its session counted when the epoch began
    born   how many groups of the script this process had ever made before this one
    turn   how many groups of its ranks had been made in this epoch, this one with them; 0: it was
           there when the epoch began
    place  where it meets, as it was last told; see `places`
    orphan made by an attempt at a step that was broken off: others may not have made it. Until the
           script calls it, it counts for nothing
    gone   the script has destroyed it
    kept   made in a step, or between two of a loop, and kept, but in no variable that a joiner is
           given its own group for
    device   whose tensors NCCL carries in it; None: all go over the host
    made_at  file and line of the script that made it
    shown    what torch and the script hold of it; None: nothing, or not yet
    """

    name: str
    seat: int
    size: int
    timeout: timedelta
    communicator: Communicator
    private: bool = False
    watch: Watch | None = None
    sequence: int = 0
    number: int = 0
    ranks: tuple[int, ...] = ()
    inside: bool = False
    begun: int = 0
    born: int = 0
    turn: int = 0
    place: str = ""
    orphan: bool = False
    gone: bool = False
    device: Any = None
    made_at: str = ""
    shown: "weakref.ref[Any] | None" = None
    order: int = field(default_factory=_order.__next__)

    def view(self, epoch: int, store: Store, at: str = "", *, fenced: bool = True) -> View:
        """This seat in an epoch. at: the name of the meeting."""
        prefix = "private" if self.private else "group"
        name, at = f"{prefix}/{self.place or self.name}", at and f"{prefix}/{at}"
        return View(epoch, name, store, self.seat, self.size, self.timeout, fenced, at)
