# SPDX-License-Identifier: Apache-2.0
"""What was asked of a group, and a handle for what is over already."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainmover.comm.calls.arguments import given_up, outputs_of
from trainmover.comm.calls.tap import Call
from trainmover.torch_internals.distributed.c10d import Work, answers_as_work

FOREVER = timedelta(0)


class Request(NamedTuple):
    """What was asked for; `call` only when a tap listens."""

    op: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    call: Call | None = None

    def outputs(self) -> list[Tensor]:
        return outputs_of(self.op, self.args, self.kwargs)

    def given_up(self, seat: int) -> list[Tensor]:
        """Its outputs at this seat, once a drain has ended it."""
        return given_up(self.op, self.args, self.kwargs, seat)


@answers_as_work
class SettledWork(Work):
    """Work that is over: `outputs` are whatever the buffers hold.

    source  seat that a message came from
    """

    def __init__(self, outputs: list[Tensor], source: int = 0) -> None:
        super().__init__()
        self._outputs = outputs
        self._source = source

    def wait(self, timeout: timedelta = FOREVER) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def block_current_stream(self) -> None:
        """As `synchronize`."""

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list[Tensor]:
        return self._outputs

    def source_rank(self) -> int:
        return self._source

    def get_future(self) -> "torch.futures.Future[Any]":
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._outputs)
        return future
