# SPDX-License-Identifier: Apache-2.0
"""Whether a script raised because a loader process was killed: that is no error of the script."""

import time
import traceback

from trainmover.torch_internals import loaders

_CUT_OFF = (ConnectionError, EOFError, FileNotFoundError)
_ENDS_WITHIN_S = 1.0


def killed_loader(error: BaseException) -> str:
    """Name the process of a loader that was killed, and so made the script raise; "" if none was.

    Where the script waits for a batch, the connection ends a moment before the process is over.
    """
    cut_off = isinstance(error, _CUT_OFF) and "multiprocessing" in _innermost(error)
    deadline = time.monotonic() + (_ENDS_WITHIN_S if cut_off else 0.0)
    while (pid := loaders.killed_process()) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return "" if pid is None else f"its loader process {pid} was killed"


def _innermost(error: BaseException) -> str:
    stack = traceback.extract_tb(error.__traceback__)
    return stack[-1].filename if stack else ""
