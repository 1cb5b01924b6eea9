# SPDX-License-Identifier: Apache-2.0
"""What a run of the script asked to be called when its process ends.

Each run asks again, so what an earlier run asked for would happen twice; what a shadow run asked
for must not happen at all.
"""

import atexit
from collections.abc import Callable
from typing import Any

_SHARED = frozenset({"weakref", "threading", "concurrent.futures.thread", "multiprocessing.util"})
"""Python's own: asked for once in the life of a process, on behalf of whoever comes first."""


class ExitCalls:
    """Notes calls of `atexit.register` while a run goes on.

    stays   whether the call comes from a module that stays loaded, as it is imported
    """

    def __init__(self, stays: Callable[[], bool]) -> None:
        self._stays = stays
        self._register = atexit.register
        self._noted: list[Callable[..., Any]] = []

    def watch(self) -> None:
        """A run begins."""
        self._noted = []
        atexit.register = self._note

    def stop(self) -> None:
        """What is asked for from now on is ours."""
        atexit.register = self._register

    def put_back(self) -> None:
        """Forget what the run asked for; nothing of it is called."""
        self.stop()
        for call in self._noted:
            atexit.unregister(call)
        self._noted = []

    def _note(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        self._register(func, *args, **kwargs)
        owner = getattr(getattr(func, "__func__", func), "__module__", None)
        if owner not in _SHARED and not self._stays():
            self._noted.append(func)
        return func
