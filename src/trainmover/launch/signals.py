# SPDX-License-Identifier: Apache-2.0
"""Signals that ask a run to stop, as its main thread hears them."""

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

STOP_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

OnSignal = Callable[[str, int, int], None]
"""Name, exit status to end with, how many of them by now."""


def watch_signals(stack: AsyncExitStack, told: OnSignal) -> None:
    """Tell of every signal that asks to stop, until `stack` ends; in the main thread only.

    A SIGHUP that we were started to ignore (nohup) stays ignored. Not SIGINT: a shell ignores that
    for whatever a script starts in the background, and who sends it by kill means it."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    times = 0

    def signalled(name: str, code: int) -> None:
        nonlocal times
        times += 1
        told(name, code, times)

    for number, code in STOP_SIGNALS.items():
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue
        loop.add_signal_handler(number, partial(signalled, number.name, code))
        stack.callback(loop.remove_signal_handler, number)
