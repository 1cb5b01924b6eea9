# SPDX-License-Identifier: Apache-2.0
"""A group that belongs to the runtime and not to the script."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from trainmover.comm.calls.settled import Request
from trainmover.comm.calls.watch import Watch
from trainmover.comm.failures import Drained
from trainmover.comm.member import Member


class _Registry(Protocol):
    draining: bool


class PrivateGroup:
    """Blocking calls over ranks of the job; unlike the script's they tell when they failed."""

    def __init__(self, member: Member, registry: _Registry) -> None:
        self._member = member
        self._registry = registry

    @property
    def name(self) -> str:
        return self._member.name

    @property
    def rank(self) -> int:
        return self._member.seat

    @property
    def size(self) -> int:
        return self._member.size

    def all_reduce(self, tensor: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
        """Reduce in place over all ranks.

        Raises Drained when the epoch ends before the result is there; `tensor` is then garbage.
        """
        watch = self._connected()
        options: Any = dist.AllreduceOptions()
        options.reduceOp = op
        watch.start(Request("allreduce", ([tensor], options), {})).wait()
        if watch.released:
            raise self._drained(watch)

    def peers(self) -> list[int]:
        """By rank the number of its process, as `Waits.by_peer` has it; empty if nobody knows."""
        prompt = self._connected().prompt
        return [] if prompt is None else prompt.peers()

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Of each the largest that any rank gives. Raises Drained as `all_reduce` does."""
        watch = self._connected()
        if watch.prompt is None:
            tensor = torch.tensor(numbers, dtype=torch.int64)
            self.all_reduce(tensor, dist.ReduceOp.MAX)
            return [int(number) for number in tensor.tolist()]
        try:
            found = watch.prompt.largest(numbers)
        except Exception as error:
            known = watch.judge(error)
            if known is error:
                raise
            if known is not None:
                raise known from error
            raise self._drained(watch) from error
        if watch.released:
            raise self._drained(watch)
        return found

    def _drained(self, watch: Watch) -> Drained:
        return Drained(f"epoch {watch.session.epoch} ended in group {self.name}")

    def _connected(self) -> Watch:
        watch = self._member.watch
        if watch is None or watch.released or self._registry.draining:
            raise Drained(f"group {self.name} is not connected")
        return watch
