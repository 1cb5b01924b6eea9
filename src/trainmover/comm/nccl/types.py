# SPDX-License-Identifier: Apache-2.0
"""torch's types and operators in libnccl's numbers."""

import ctypes
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainmover.comm.nccl import library as nccl
from trainmover.torch_internals.distributed.c10d import premul_factor

_CODES = {
    torch.int8: 0,
    torch.uint8: nccl.UINT8,
    torch.int32: 2,
    torch.uint32: 3,
    torch.int64: 4,
    torch.uint64: 5,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bfloat16: 9,
    torch.float8_e4m3fn: 10,  # NCCL 2.24 or newer; older ones refuse it.
    torch.float8_e5m2: 11,
}
_FACTORS: dict[torch.dtype, Any] = {
    torch.float16: ctypes.c_uint16,
    torch.bfloat16: ctypes.c_uint16,
    torch.float32: ctypes.c_float,
    torch.float64: ctypes.c_double,
}
_KINDS: Any = dist.ReduceOp.RedOpType
_OPERATORS = {
    _KINDS.SUM: nccl.SUM,
    _KINDS.PRODUCT: nccl.PRODUCT,
    _KINDS.MAX: nccl.MAX,
    _KINDS.MIN: nccl.MIN,
    _KINDS.AVG: nccl.AVG,
}


class Reduction:
    """An operator on values of one type. Raises as torch does for what NCCL cannot do.

    code      of the type; values of a complex one are reduced as pairs of real ones
    operator  None for one that a communicator has to make: `factor` says of what
    """

    def __init__(self, asked: Any, dtype: torch.dtype) -> None:
        kind = getattr(asked, "op", asked)
        real = torch.zeros((), dtype=dtype).real.dtype if dtype.is_complex else dtype
        if dtype is torch.bool:
            kind, real = self._of_truths(kind), torch.uint8
        if dtype.is_complex and kind not in (_KINDS.SUM, _KINDS.AVG, _KINDS.PREMUL_SUM):
            raise RuntimeError(f"{kind} is not defined for complex numbers over NCCL")
        if real not in _CODES:
            raise RuntimeError(f"Invalid scalar type: {dtype} cannot be reduced by NCCL")
        self.code = _CODES[real]
        self.pairs = dtype.is_complex
        self.operator = _OPERATORS.get(kind)
        self.factor = _factor(asked, real) if kind == _KINDS.PREMUL_SUM else None
        if self.operator is None and self.factor is None:
            name = getattr(kind, "name", kind)
            raise RuntimeError(f"Cannot use ReduceOp.{name} with NCCL")

    @staticmethod
    def _of_truths(kind: Any) -> Any:
        """Return the reduction of truths: a sum is whether any is true, as in torch."""
        if kind == _KINDS.SUM:
            return _KINDS.MAX
        if kind == _KINDS.AVG:
            raise RuntimeError("Cannot use ReduceOp.AVG with bool over NCCL")
        return kind

    def count(self, tensor: Tensor) -> int:
        return tensor.numel() * (2 if self.pairs else 1)


def _factor(asked: Any, dtype: torch.dtype) -> Any:
    """Return the factor in the host's memory, in the type of the values."""
    if dtype not in _FACTORS:
        raise RuntimeError(f"Cannot use ReduceOp.PREMUL_SUM with {dtype}")
    value = torch.as_tensor(premul_factor(asked)).detach().cpu().to(dtype).reshape(())
    if _FACTORS[dtype] is ctypes.c_uint16:
        return ctypes.c_uint16(int(value.view(torch.int16)) & 0xFFFF)
    return _FACTORS[dtype](float(value))


def nbytes(tensor: Tensor) -> int:
    """Return the tensor's size in bytes: what is moved goes by these, whatever its type."""
    return tensor.numel() * tensor.element_size()
