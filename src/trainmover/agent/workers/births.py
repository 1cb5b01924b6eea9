"""Workers that the machine's nursery forks: asked for now, born a moment later.

The loop never waits for a nursery: on a busy host a fork may take longer than the silence after
which a machine counts as lost.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence

from trainmover.nursery import Birth, Child, Nursery

Born = Callable[[Child | None], None]
"""Called once, with the process; None if the nursery cannot."""


class Births:
    """Questions to one nursery. It answers in the order in which it is asked."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._waiting: deque[Born] = deque()
        asyncio.get_running_loop().add_reader(nursery.fileno(), self._answered)

    def ask(self, birth: Birth, descriptors: Sequence[int], born: Born) -> None:
        """descriptors  to be its 1, 2 and so on; they stay open until `born` is called"""
        stdin = os.open(os.devnull, os.O_RDONLY)
        try:
            self._nursery.ask(birth, [stdin, *descriptors])
        except OSError:
            asyncio.get_running_loop().call_soon(born, None)
        else:
            self._waiting.append(born)
        finally:
            os.close(stdin)

    def _answered(self) -> None:
        try:
            (pid,) = self._nursery.answer()
        except ConnectionError:
            self._close()
        except OSError:
            self._waiting.popleft()(None)
        else:
            self._waiting.popleft()(Child(pid))

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._nursery.fileno())
        self._nursery.close()
        while self._waiting:
            self._waiting.popleft()(None)
