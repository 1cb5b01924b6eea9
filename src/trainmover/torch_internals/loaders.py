"""Passes over a DataLoader whose processes still run."""

import gc
import multiprocessing
from typing import Any


def end_passes() -> None:
    """End the processes of all loaders, as a pass does at its end. Of torchdata's too.

    Where a pass is part of a cycle (all that a script's globals hold is) the collector closes its
    queues first, so the word to end is never sent: torch waits for five seconds, then kills.
    """
    if not multiprocessing.active_children():
        return
    for one in [one for one in gc.get_objects() if hasattr(type(one), "_shutdown_workers")]:
        its: Any = one
        its._shutdown_workers()
