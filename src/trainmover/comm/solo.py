# SPDX-License-Identifier: Apache-2.0
"""A group of one: every sum is its only addend, so there is nobody to connect to."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from trainmover.comm.calls.arguments import MESSAGES, inputs_of, outputs_of
from trainmover.comm.calls.settled import SettledWork
from trainmover.comm.communicator import LinkStats, View
from trainmover.errors import UserError


class SoloSession:
    """Copies inputs to outputs."""

    immediate = True
    prompt = False

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._calls = 0

    def issue(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if op in MESSAGES:
            raise UserError(f"{op} in a group of one rank has no peer")
        self._calls += 1
        outputs = outputs_of(op, args, kwargs)
        for output, given in zip(outputs, inputs_of(op, args, kwargs), strict=False):
            if output is not given:
                output.detach().copy_(given.detach().reshape(output.shape))
        return None if op == "monitored_barrier" else SettledWork(outputs)

    def sliced(self, op: str, work: Any) -> bool:
        return True

    def abort(self, why: str) -> None:
        """Nobody waits in a group of one."""

    def backend(self, device: Any) -> Any:
        return None

    def set_timeout(self, timeout: timedelta) -> None:
        """Nobody waits in a group of one."""

    def sequence_number(self) -> int:
        return self._calls


class SoloCommunicator:
    """Serves groups of size one in every epoch."""

    def __init__(self) -> None:
        self._session: SoloSession | None = None

    @property
    def session(self) -> SoloSession | None:
        return self._session

    def prepare(self, view: View) -> None:
        """Nothing to meet."""

    def switchover(self, epoch: int) -> None:
        self._session = SoloSession(epoch)

    def discard(self, epoch: int) -> None:
        """Nothing was prepared."""

    def abort(self, why: str) -> None:
        """Nothing to wake."""

    def close(self) -> None:
        self._session = None

    def stats(self) -> LinkStats:
        return LinkStats()
