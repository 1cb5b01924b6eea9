# SPDX-License-Identifier: Apache-2.0
"""Objects of which a process has one, and that scripts reach by calls: `current_thread()`,
`getLogger("train")`; and the loop that runs the script's tasks, whether it has a name for them.
"""

import asyncio
import logging
import multiprocessing
import signal
import threading
from collections.abc import Iterator, Set

import numpy

from trainmover.torch_internals.modes import entered, hook_for_saved


def singles(stored: Set[str]) -> Iterator[tuple[str, object]]:
    """Those on which somebody has put an attribute of one of these names, each with its path."""
    new = stored - _USUAL
    if not new:
        return
    for path, one in _every():
        if not new.isdisjoint(vars(one)):
            yield path, one


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Of asyncio's, that the fetch is in."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def called_by_process() -> Iterator[tuple[str, object]]:
    """What nothing but the process may hold: modes of torch that were entered by hand, what packs
    tensors that are saved, handlers of signals, what is called at numpy's errors; what gets a
    logger's lines."""
    for number, one in enumerate(entered()):
        yield f"modes[{number}]", one
    yield "saved_tensors_hooks", hook_for_saved()
    yield "numpy.geterrcall()", numpy.geterrcall()
    for number in sorted(signal.valid_signals()):
        yield f"getsignal({number:d})", signal.getsignal(number)
    for path, logger in _loggers():
        if type(logger) not in (logging.Logger, logging.RootLogger):
            yield path, logger
        yield from _gets_lines(path, logger)


def _every() -> Iterator[tuple[str, object]]:
    yield "main_thread()", threading.main_thread()
    yield "current_process()", multiprocessing.current_process()
    yield from _loggers()


def _loggers() -> Iterator[tuple[str, logging.Logger]]:
    yield "getLogger()", logging.root
    for name, one in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(one, logging.Logger):
            yield f"getLogger({name!r})", one


def _gets_lines(path: str, owner: logging.Logger | logging.Handler) -> Iterator[tuple[str, object]]:
    for number, one in enumerate(owner.filters):
        yield f"{path}.filters[{number}]", one
    for number, handler in enumerate(getattr(owner, "handlers", ())):
        yield f"{path}.handlers[{number}]", handler
        yield from _gets_lines(f"{path}.handlers[{number}]", handler)


_USUAL = frozenset().union(*map(vars, (one for _, one in _every()))) | {*vars(logging.Logger(""))}
"""Attributes that they have by themselves."""
