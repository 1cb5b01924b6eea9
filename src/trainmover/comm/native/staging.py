# SPDX-License-Identifier: Apache-2.0
"""One call on its way into the extension: memory it may touch, and what follows behind it.

The extension works on the host's memory in one piece. A tensor that is that already is handed over
as it is; any other gets a stand-in, which is copied back when the call has come through.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainmover.comm.calls.arguments import flat
from trainmover.comm.calls.settled import SettledWork
from trainmover.comm.calls.threads import waiters
from trainmover.comm.native.options import Options
from trainmover.comm.native.work import Behind, NativeWork, Step
from trainmover.torch_internals.autograd import begin_record, end_record
from trainmover.torch_internals.distributed.c10d import ALL_GATHER_BASE, REDUCE_SCATTER_BASE

if TYPE_CHECKING:
    from trainmover.comm.native.session import NativeSession

_TITLES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    ALL_GATHER_BASE: "all_gather",
    "all_gather_single": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    REDUCE_SCATTER_BASE: "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "recv_anysource": "recvAnySource",
}
"""Operations by the names that gloo gives them in a profile."""


class Staging:
    """What one call needs beside its arguments.

    keep   stays alive until the call is over
    only_reads  the call writes nothing at this seat, also not to its outputs
    """

    def __init__(self, session: "NativeSession", told: Step | None = None) -> None:
        self.session = session
        self.group = session.group
        self.epoch = session.epoch
        self.keep: list[Any] = []
        self.only_reads = False
        self._told = told
        self._steps: list[Step] = []
        self._always: Step | None = None

    def reads(self, tensor: Tensor) -> int:
        """Address of the tensor's values."""
        return self._whole(tensor).data_ptr()

    def writes(self, tensor: Tensor) -> int:
        """Address where the tensor's new values may be put."""
        if in_one_piece(tensor):
            self.keep.append(tensor)
            return tensor.data_ptr()
        stand_in = torch.empty(tensor.shape, dtype=tensor.dtype)
        return self._stand_in(tensor, stand_in)

    def updates(self, tensor: Tensor) -> int:
        """Address of the values, to be replaced by new ones."""
        whole = self._whole(tensor)
        if whole is tensor:
            return tensor.data_ptr()
        return self._stand_in(tensor, whole)

    def _whole(self, tensor: Tensor) -> Tensor:
        if not in_one_piece(tensor):
            tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        self.keep.append(tensor)
        return tensor

    def _stand_in(self, tensor: Tensor, stand_in: Tensor) -> int:
        self.keep.append(stand_in)
        self.then(lambda: copy_into(tensor, stand_in))
        return stand_in.data_ptr()

    def packed(self, tensors: Iterable[Tensor]) -> Tensor:
        """The bytes of all, one behind the other."""
        parts = [as_bytes(self._whole(tensor)) for tensor in tensors]
        pack = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)
        self.keep.append(pack)
        return pack

    def then(self, step: Step) -> None:
        """Do it once the call has come through, before anybody is told."""
        self._steps.append(step)

    def record(self, op: str, inputs: list[Tensor]) -> None:
        """Have the profiler show the call as it shows gloo's, from now to its end."""
        title = f"gloo:{_TITLES.get(op, op)}"
        record = begin_record(title, inputs)
        self._always = lambda: _in_another_thread(lambda: end_record(record))

    def give_up(self) -> None:
        """The call was not made."""
        always, self._always = self._always, None
        if always is not None:
            always()

    def launch(self, start: Callable[[bool], Any], outputs: Any, options: Options) -> Any:
        """Make the call by `start(background)`, which gives a ticket if it is made so.

        outputs  the caller's tensors that it fills
        """
        if not options.background and self._always is None and options.timeout is None:
            start(False)
            return self.finish(outputs)
        if self._told is not None:
            self._steps.append(self._told)
        behind = Behind(self._steps, self._always) if self._steps or self._always else None
        work = NativeWork(
            self.session, start(True), outputs, self.keep, behind, reads=self.only_reads
        )
        self._always = None
        if not options.background:
            self.session.wait_for(work, options.timeout)
        return work

    def finish(self, outputs: Any) -> SettledWork:
        """The call has come through."""
        for step in self._steps:
            step()
        if self._told is not None:
            self._told()
        return SettledWork(list(flat(outputs)))


def in_one_piece(tensor: Tensor) -> bool:
    """Whether the host's memory holds exactly the tensor's values, in order."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def copy_into(tensor: Tensor, values: Tensor) -> None:
    """Also into a leaf that wants a gradient."""
    with torch.no_grad():
        tensor.copy_(values)


def as_bytes(tensor: Tensor) -> Tensor:
    """The memory of a tensor in one piece, as a flat tensor of bytes."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def unpack(pack: Tensor, tensors: Iterable[Tensor]) -> None:
    """Fill tensors with the bytes that `Staging.packed` made of such tensors."""
    begin = 0
    for tensor in tensors:
        end = begin + tensor.numel() * tensor.element_size()
        part = pack[begin:end].clone().view(tensor.dtype)  # A part may lie where the type may not.
        copy_into(tensor, part.view(tensor.shape))
        begin = end


def _in_another_thread(step: Step) -> None:
    """The profiler calls a record asynchronous if it ends in another thread than it began in."""
    over = threading.Event()

    def run() -> None:
        step()
        over.set()

    waiters.run(run)
    over.wait()
