# SPDX-License-Identifier: Apache-2.0
"""Tracebacks of our own processes, escaped: an exception quotes what it was given from outside.

What the script of a user prints, tracebacks among it, is its own and passes as it is.
"""

import logging
import sys
import threading
import traceback
from types import TracebackType

from trainmover.escaping import escape


def print_exception(error: BaseException) -> None:
    """Write the traceback to stderr."""
    print(escape("".join(traceback.format_exception(error))), end="", file=sys.stderr, flush=True)


def escape_tracebacks() -> None:
    """Have all that Python itself prints of exceptions in this process escaped: what nobody caught,
    in any thread, and what asyncio logs. For processes that run no script."""
    sys.excepthook = _print_uncaught
    threading.excepthook = _print_uncaught_of_thread
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Escaping())


class _Escaping(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


def _print_uncaught(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    print_exception(error)


def _print_uncaught_of_thread(given: threading.ExceptHookArgs) -> None:
    if given.exc_value is not None:
        print_exception(given.exc_value)
