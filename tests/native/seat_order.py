# SPDX-License-Identifier: Apache-2.0
"""What a reduction over ranks is, bit for bit, in plain torch.

The native communicator must give these bits on every transport, every instruction set and every cut
into chunks.

Element i of the result is `((x0 op x1) op x2) op ...`, in seat order:

- f16 and bf16 accumulate in f32 and round once, to nearest even.
- `avg` is the sum divided by the number of tensors; integers truncate toward zero.
- Sums and products of integers wrap.
- bool: sum, max, bor are OR; product, min, band are AND; bxor is XOR.
- min and max give NaN where an input is NaN, and the later of two zeros that differ in sign.
- A complex product is `(ar*br - ai*bi, ar*bi + ai*br)`, each product and difference rounded.
- Every NaN of a result is the positive quiet one without payload: which of two NaNs an addition
  hands on is up to the compiler.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor

Fold = Callable[[Tensor, Tensor], Tensor]

OPS = ("sum", "avg", "min", "max", "product", "band", "bor", "bxor")
BITWISE: dict[str, Fold] = {
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}
LOGICAL: dict[str, Fold] = {
    "sum": torch.logical_or,
    "max": torch.logical_or,
    "bor": torch.logical_or,
    "product": torch.logical_and,
    "min": torch.logical_and,
    "band": torch.logical_and,
    "bxor": torch.logical_xor,
}
HALVES = {torch.float16, torch.bfloat16}
UNSIGNED = {torch.uint8, torch.uint16, torch.uint32, torch.uint64}


def reduce_in_seat_order(tensors: Sequence[Tensor], op: str) -> Tensor:
    """A new tensor of the inputs' dtype and shape. `tensors[s]` is seat s's.

    Raises ValueError for an operation that the dtype lacks.
    """
    dtype = tensors[0].dtype
    if not supports(dtype, op):
        raise ValueError(f"{op} of {dtype} is not defined")
    if dtype == torch.bool:
        return reduce(LOGICAL[op], tensors).clone()
    if dtype.is_complex:
        return reduce_complex(tensors, op)
    if dtype.is_floating_point:
        return reduce_floats(tensors, op)
    return reduce_integers(tensors, op)


def supports(dtype: torch.dtype, op: str) -> bool:
    if op not in OPS:
        return False
    if dtype == torch.bool:
        return op != "avg"
    if dtype.is_complex:
        return op in {"sum", "avg", "product"}
    if dtype.is_floating_point:
        return dtype.itemsize > 1 and op not in BITWISE
    return True


def reduce_floats(tensors: Sequence[Tensor], op: str) -> Tensor:
    dtype = tensors[0].dtype
    wide = [tensor.float() if dtype in HALVES else tensor for tensor in tensors]
    total = reduce(float_fold(op), wide)
    if op == "avg":
        total = total / len(tensors)
    return one_nan(total.to(dtype, copy=True))


def float_fold(op: str) -> Fold:
    if op == "product":
        return torch.mul
    if op == "min":
        return lambda a, b: torch.where((a < b) | a.isnan(), a, b)
    if op == "max":
        return lambda a, b: torch.where((a > b) | a.isnan(), a, b)
    return torch.add


def one_nan(values: Tensor) -> Tensor:
    return torch.where(values.isnan(), torch.full_like(values, float("nan")), values)


def reduce_complex(tensors: Sequence[Tensor], op: str) -> Tensor:
    parts = [torch.view_as_real(tensor.resolve_conj()) for tensor in tensors]
    if op != "product":
        return torch.view_as_complex(reduce_floats(parts, op))
    return torch.view_as_complex(one_nan(reduce(complex_product, parts).clone()))


def complex_product(a: Tensor, b: Tensor) -> Tensor:
    """Of tensors whose last dimension is (real, imaginary). In steps, so that nothing is fused."""
    real = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    imaginary = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
    return torch.stack((real, imaginary), dim=-1)


def reduce_integers(tensors: Sequence[Tensor], op: str) -> Tensor:
    """In int64, where narrow types have room, and wrapped back at the end.

    Modulo 2^64 and then modulo 2^k is modulo 2^k, so one wrap is as good as many. Only u64 has no
    room: it lies in int64 by its bits, which order and division must see through.
    """
    dtype = tensors[0].dtype
    wide = [into_int64(tensor) for tensor in tensors]
    if dtype == torch.uint64 and op in {"min", "max"}:
        flip = torch.tensor(-(2**63))  # unsigned order is signed order with the first bit flipped
        return from_int64(reduce(integer_fold(op), [bits ^ flip for bits in wide]) ^ flip, dtype)
    total = reduce(integer_fold(op), wide)
    if op != "avg":
        return from_int64(total, dtype)
    if dtype == torch.uint64:
        return from_int64(divide_unsigned(total, len(tensors)), dtype)
    wrapped = into_int64(from_int64(total, dtype))
    return from_int64(torch.div(wrapped, len(tensors), rounding_mode="trunc"), dtype)


def integer_fold(op: str) -> Fold:
    folds = {"product": torch.mul, "min": torch.minimum, "max": torch.maximum, **BITWISE}
    return folds.get(op, torch.add)


def into_int64(tensor: Tensor) -> Tensor:
    return tensor.view(torch.int64) if tensor.dtype == torch.uint64 else tensor.to(torch.int64)


def from_int64(wide: Tensor, dtype: torch.dtype) -> Tensor:
    """The lowest bits of `wide`, read as `dtype`."""
    if dtype == torch.uint64:
        return wide.clone().view(dtype)
    bits = dtype.itemsize * 8
    low = wide if bits == 64 else wide & (2**bits - 1)
    if dtype not in UNSIGNED and bits < 64:
        low = torch.where(low >= 2 ** (bits - 1), low - 2**bits, low)
    return low.to(dtype, copy=True)


def divide_unsigned(bits: Tensor, by: int) -> Tensor:
    """Quotients of the unsigned numbers whose bits are given, toward zero; `by` is small."""
    half = (bits >> 1) & (2**63 - 1)
    quotient = torch.div(half, by, rounding_mode="trunc") * 2
    # What halving left out makes up for at most one more.
    return quotient + ((bits - quotient * by) >= by)
