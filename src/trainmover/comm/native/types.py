# SPDX-License-Identifier: Apache-2.0
"""torch's types and operators in the codes of the native communicator."""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainmover import _native

_CODES: dict[str, int] = _native.DTYPES
_REAL = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
}
_COMPLEX = {"c64": "complex64", "c128": "complex128"}

PLAIN: dict[torch.dtype, int] = {getattr(torch, t): _CODES[c] for c, t in _REAL.items()}
"""Types that can be reduced, and whose memory is what it says: no lazy conjugation."""

REDUCED: dict[torch.dtype, int] = PLAIN | {
    getattr(torch, t): _CODES[c] for c, t in _COMPLEX.items()
}
"""Types that can be reduced."""

_BY_SIZE = {1: "byte1", 2: "i16", 4: "i32", 8: "i64", 16: "c128"}

_OPERATORS = {
    "SUM": "sum",
    "AVG": "avg",
    "MIN": "min",
    "MAX": "max",
    "PRODUCT": "product",
    "BAND": "band",
    "BOR": "bor",
    "BXOR": "bxor",
}


def _operators() -> list[int | None]:
    kinds: Any = dist.ReduceOp.RedOpType.__members__
    table: list[int | None] = [None] * (1 + max(int(kind) for kind in kinds.values()))
    for name, word in _OPERATORS.items():
        table[int(kinds[name])] = _native.OPS[word]
    return table


OPERATORS = _operators()
"""Code of an operator by torch's number for it; None for one that is not served."""

UNSET: timedelta = dist.BarrierOptions().timeout
"""What an option says where the group's own timeout holds."""


def plain_code(tensor: Tensor) -> int | None:
    """Code of the type if the extension may work on the tensor's own memory."""
    if tensor.is_cpu and tensor.layout is torch.strided and tensor.is_contiguous():
        return PLAIN.get(tensor.dtype)
    return None


def reduced_code(dtype: torch.dtype) -> int:
    """Raises RuntimeError for a type without arithmetic."""
    code = REDUCED.get(dtype)
    if code is None:
        raise RuntimeError(f"Invalid scalar type: {dtype} cannot be reduced")
    return code


def moved_code(dtype: torch.dtype) -> int:
    """Any type can be moved: what has no code of its own goes by its size."""
    code = REDUCED.get(dtype)
    return _CODES[_BY_SIZE[dtype.itemsize]] if code is None else code


def operator_code(reduction: Any) -> int:
    """Of a ReduceOp or RedOpType. Raises RuntimeError for one that is not served."""
    kind = getattr(reduction, "op", reduction)
    code = OPERATORS[int(kind)]
    if code is None:
        raise RuntimeError(f"Cannot use ReduceOp.{kind.name} with this communicator")
    return code
