# SPDX-License-Identifier: Apache-2.0
"""Workers that the machine's fork server forks: asked for now, born a moment later.

The loop never waits for a fork server: on a busy host a fork may take longer than the silence after
which a machine counts as lost.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence

from trainmover.fork_server import Birth, Child, ForkServer

Born = Callable[[Child | None], None]
"""Called once, with the process; None if the fork server cannot."""


class Births:
    """Questions to one fork server. It answers in the order in which it is asked."""

    def __init__(self, fork_server: ForkServer) -> None:
        self._fork_server = fork_server
        self._waiting: deque[Born] = deque()
        asyncio.get_running_loop().add_reader(fork_server.fileno(), self._answered)

    def ask(self, birth: Birth, descriptors: Sequence[int], born: Born) -> None:
        """descriptors  to be its 1, 2 and so on; they stay open until `born` is called"""
        stdin = os.open(os.devnull, os.O_RDONLY)
        try:
            self._fork_server.ask(birth, [stdin, *descriptors])
        except OSError:
            asyncio.get_running_loop().call_soon(born, None)
        else:
            self._waiting.append(born)
        finally:
            os.close(stdin)

    def _answered(self) -> None:
        try:
            (pid,) = self._fork_server.answer()
        except ConnectionError:
            self._close()
        except OSError:
            self._waiting.popleft()(None)
        else:
            self._waiting.popleft()(Child(pid))

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fork_server.fileno())
        self._fork_server.close()
        while self._waiting:
            self._waiting.popleft()(None)
