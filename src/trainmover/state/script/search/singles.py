"""Objects of which a process has one, and that scripts reach by calls: `current_thread()`,
`getLogger("train")`; and the loop that runs the script's tasks, whether it has a name for them.
"""

import asyncio
import logging
import multiprocessing
import signal
import threading
from collections.abc import Iterator, Set

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
    tensors that are saved, handlers of signals."""
    for number, one in enumerate(entered()):
        yield f"modes[{number}]", one
    yield "saved_tensors_hooks", hook_for_saved()
    for number in sorted(signal.valid_signals()):
        yield f"getsignal({number:d})", signal.getsignal(number)


def _every() -> Iterator[tuple[str, object]]:
    yield "main_thread()", threading.main_thread()
    yield "current_process()", multiprocessing.current_process()
    yield from _of_logger("getLogger()", logging.root)
    for name, one in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(one, logging.Logger):
            yield from _of_logger(f"getLogger({name!r})", one)


def _of_logger(path: str, logger: logging.Logger) -> Iterator[tuple[str, object]]:
    """And what gets its lines."""
    yield path, logger
    yield from _filters(path, logger)
    for number, one in enumerate(logger.handlers):
        yield f"{path}.handlers[{number}]", one
        yield from _filters(f"{path}.handlers[{number}]", one)


def _filters(path: str, owner: logging.Filterer) -> Iterator[tuple[str, object]]:
    for number, one in enumerate(owner.filters):
        if hasattr(one, "__dict__"):
            yield f"{path}.filters[{number}]", one


_LOGGING = (logging.Logger(""), logging.StreamHandler(), logging.Filter(), logging.Formatter())
_USUAL = frozenset().union(*map(vars, (*_LOGGING, *(one for _, one in _every()))))
"""Attributes that they have by themselves."""
