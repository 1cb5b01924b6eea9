# SPDX-License-Identifier: Apache-2.0
"""The store where groups meet, for torch and for us: the job's own, behind a listener.

It is a `torch.distributed.Store`, so gloo meets there too. Both ends of its connection have proved
that they know the job's token, and what they say is sealed, so nobody else can read, write or
change what lies there.
"""

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from types import NoneType
from typing import TypeVar

from trainmover.errors import TrainmoverError
from trainmover.listeners.dial import dial, hear
from trainmover.protocol.hello import STORE
from trainmover.protocol.keys import Add, Check, Get, Request, Set, decode_answer, encode
from trainmover.torch_internals.distributed.c10d import Store

_Answer = TypeVar("_Answer")
ANSWER_S = 20.0
_PATIENCE = timedelta(seconds=300)
_ASK_AGAIN_S = 0.01


class MeetingPlace(Store):
    """One connection to it, for any thread; requests of several threads wait for each other.

    torch holds no Python object, so whoever gives this to torch keeps it as long.
    Methods are torch's. They raise RuntimeError, as torch's do, once the connection is lost, or if
    no answer comes within `ANSWER_S`.
    """

    def __init__(self, address: str, token: bytes) -> None:
        """Raises PeerLost, or ProtocolError if who listens there is not the job's."""
        super().__init__()
        self.address = address
        self._link, self._session = dial(address, token=token, purpose=STORE)
        self._turn = threading.Lock()

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(Set(key, value.encode() if isinstance(value, str) else bytes(value)), NoneType)

    def add(self, key: str, amount: int) -> int:
        return self._ask(Add(key, amount), int)

    def check(self, keys: Sequence[str]) -> bool:
        return self._ask(Check(list(keys)), bool)

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Blocks until all are there, as torch's do."""
        while None in (found := self._ask(Get(list(keys)), list[bytes | None])):
            self.wait(keys)
        return [value for value in found if value is not None]

    def wait(self, keys: Sequence[str], timeout: timedelta = _PATIENCE) -> None:
        deadline = time.monotonic() + timeout.total_seconds()
        while not self.check(keys):
            if time.monotonic() >= deadline:
                raise RuntimeError(f"nobody has set all of {list(keys)} within {timeout}")
            time.sleep(_ASK_AGAIN_S)

    def has_extended_api(self) -> bool:
        return True

    def _ask(self, request: Request, kind: type[_Answer]) -> _Answer:
        with self._turn:
            try:
                return decode_answer(self._answer(request), kind)
            except (OSError, TrainmoverError) as error:
                self._link.close()  # An answer that comes late is nobody's.
                raise RuntimeError(f"the job's store does not answer: {error}") from error

    def _answer(self, request: Request) -> memoryview:
        self._link.sendall(self._session.seal(encode(request)))
        return hear(self._link, self._session, time.monotonic() + ANSWER_S)
