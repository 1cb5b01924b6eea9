# SPDX-License-Identifier: Apache-2.0
"""One call on its way onto the stream: memory it may touch, and what follows behind it.

libnccl works on memory of the device in one piece. A tensor that is that already is handed over as
it is; any other gets a stand-in, which is copied back on the stream, behind the call.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainmover.comm.native.options import Options
from trainmover.comm.nccl.library import Library
from trainmover.comm.nccl.types import Reduction
from trainmover.comm.nccl.work import NcclWork

if TYPE_CHECKING:
    from trainmover.comm.nccl.session import NcclSession

Call = Callable[[Library, tuple[int, int]], None]
"""What asks the library, given a communicator and a stream."""


class Stage:
    """Needs of one call beside its arguments.

    keep        stays alive until the call is over
    only_reads  the call writes nothing at this seat, also not to its outputs
    holds_host  who waits for it waits on the host
    """

    def __init__(self, session: "NcclSession", told: Callable[[], None] | None = None) -> None:
        self.session = session
        self.size, self.seat = session.size, session.seat
        self.keep: list[Any] = []
        self.only_reads = self.holds_host = False
        self.told = told
        self.calls: list[Call] = []
        self.copies: list[tuple[Tensor, Tensor]] = []
        self.inputs: list[Tensor] = []
        self.indices: list[Tensor] = []
        self.operators: list[int] = []

    def reads(self, tensor: Tensor) -> Tensor:
        """Return the tensor's values, in one piece."""
        self.inputs.append(whole := self._whole(tensor))
        return whole

    def _whole(self, tensor: Tensor) -> Tensor:
        if not self.session.device.holds(tensor):
            raise RuntimeError(
                f"A tensor on {tensor.device} was given to a call of group {self.session.name}, "
                f"which talks from {self.session.device.name}: call torch.cuda.set_device, or give "
                "device_id, before init_process_group"
            )
        whole = tensor.detach()
        if not _in_one_piece(whole):
            whole = whole.resolve_conj().resolve_neg().contiguous()
        return self.holds(whole)

    def writes(self, tensor: Tensor) -> Tensor:
        """Memory for the tensor's new values."""
        return self.fills(self._destination(tensor))

    def fills(self, whole: Tensor) -> Tensor:
        """Memory that the call writes and does not read."""
        if not (whole.is_floating_point() or whole.is_complex()):
            self.indices.append(whole)
        return whole

    def updates(self, tensor: Tensor) -> Tensor:
        """Memory with the tensor's values, to be replaced by new ones."""
        self.inputs.append(whole := self._destination(tensor))
        return whole

    def _destination(self, tensor: Tensor) -> Tensor:
        whole = self._whole(tensor)
        if whole.data_ptr() != tensor.data_ptr() or not _in_one_piece(tensor):
            self.then_copies(tensor, whole)
        return whole

    def holds(self, tensor: Tensor) -> Tensor:
        self.keep.append(tensor)
        return tensor

    def then_copies(self, tensor: Tensor, values: Tensor) -> None:
        """Fill the tensor behind the call."""
        self.keep += tensor, values
        self.copies.append((tensor, values))

    def operator(self, reduction: Reduction) -> Callable[[], int]:
        """Return the operator's number, once the call is made: one with a factor belongs to a
        communicator."""
        if reduction.operator is not None:
            known = reduction.operator
            return lambda: known

        def make() -> int:
            session = self.session
            made = session.library.premul_sum(reduction.factor, reduction.code, session.comm)
            self.operators.append(made)
            return made

        return make

    def call(self, call: Call) -> None:
        self.calls.append(call)

    def launch(self, outputs: Any, options: Options) -> NcclWork:
        """Make the calls, as one. outputs: the caller's tensors that they fill."""
        work = self.session.launch(self, outputs)
        if options.timeout is not None:
            work.wait(options.timeout)
        elif not options.background:
            work.wait()
        return work

    @property
    def blanked(self) -> list[Tensor]:
        """Integers to be zeroed before the call: a script takes them for sizes and indices, and an
        end in the middle of the call would leave it what lay there. Those that share memory with
        an input hold values."""
        inputs = {tensor.untyped_storage().data_ptr() for tensor in self.inputs}
        return [t for t in self.indices if t.untyped_storage().data_ptr() not in inputs]

    def copy_back(self) -> None:
        """Copy, also into a leaf that wants a gradient."""
        with torch.no_grad():
            for tensor, values in self.copies:
                tensor.copy_(values.view(tensor.shape))


def _in_one_piece(tensor: Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
