# SPDX-License-Identifier: Apache-2.0
"""Iterators of torch's DataLoader: what they fetch, and how to pass over it."""

import gc
import multiprocessing
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling

_signals: Any = signal_handling
UNBEGUN: dict[str, Any] = {"_iterator": None}
"""Attributes of a DataLoader that nobody has iterated."""


_KILLED = re.compile(r"\(pid (\d+)\) is killed by signal: (?:Killed|Terminated)")
_killed: list[int] = []
_told: list[bool] = [True]
YIELDED = "_num_yielded"
"""What `yielded` reads; torchdata calls it so in its states, too."""


def fetches_here(iterator: Any) -> bool:
    """Whether this process fetches the data, and not one of the loader's own."""
    return bool(iterator._num_workers == 0)


def pass_over(iterator: Any) -> None:
    """The next batch: its indices are drawn, its data is not fetched. Raises StopIteration."""
    iterator._next_index()


def yielded(iterator: Any) -> int:
    """How many batches such an iterator has given."""
    return int(iterator._num_yielded)


def pass_of(loader: Any) -> Any:
    """The iterator of the pass that it has begun last and keeps; None: it keeps none."""
    return loader._iterator


def iterate_by(make: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
    """Have `iter(loader)` of torch's DataLoader give what `make` returns, of the loader and of
    torch's own way to iterate over it."""
    plain = DataLoader.__iter__

    @wraps(plain)
    def iterate(loader: Any) -> Any:
        return make(loader, plain)

    DataLoader.__iter__ = iterate  # type: ignore[method-assign]


def call_in_processes(do: Callable[[], object]) -> None:
    """Call `do` as each process of a loader begins, after torch has set its signal handlers there.
    Of torchdata's too; not in processes that are spawned."""
    inner = _signals._set_worker_signal_handlers

    def set_handlers() -> None:
        inner()
        do()

    _signals._set_worker_signal_handlers = set_handlers


def watch_processes() -> None:
    """Note which processes of loaders are killed: what a script hears of it may be anything."""
    inner = _signals._error_if_any_worker_fails

    def check() -> None:
        try:
            inner()
        except RuntimeError as error:
            if found := _KILLED.search(str(error)):
                _killed.append(int(found[1]))
            if _told[0]:
                raise

    _signals._error_if_any_worker_fails = check


@contextmanager
def told_by_signal() -> Iterator[None]:
    """Have a loader's process that dies raise wherever this process is, as torch does it, until
    the script is over: afterwards it is noted only, for our own code can do nothing with it."""
    _told[0] = True
    try:
        yield
    finally:
        _told[0] = False


def killed_process() -> int | None:
    """Return the pid of a loader's process that was killed in this run, as for its memory. A
    script's own fault ends one by other signals, or with a status."""
    return _killed[0] if _killed else None


def end_passes() -> None:
    """End the processes of all loaders, as a pass does at its end. Of torchdata's too.

    Where a pass is part of a cycle (all that a script's globals hold is) the collector closes its
    queues first, so the word to end is never sent: torch waits for five seconds, then kills.
    """
    _killed.clear()
    if not multiprocessing.active_children():
        return
    for one in _iterators():
        one._shutdown_workers()
        for process in one._workers:
            process.kill()  # It may outlive the SIGTERM by which torch ends one that is stuck.


def _iterators() -> list[Any]:
    """Find all that load with processes."""
    return [one for one in gc.get_objects() if hasattr(type(one), "_shutdown_workers")]
