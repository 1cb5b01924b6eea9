"""Tensors for the native tests: every dtype, values that hurt, bitwise comparison."""

from dataclasses import dataclass

import torch
from seat_order import reduce_in_seat_order

from trainmover import _native

TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "bool": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "byte1": torch.float8_e4m3fn,
}
DTYPES = sorted(TORCH)
OPS = ["sum", "avg", "min", "max", "product", "band", "bor", "bxor"]
FLOATS = {"f64", "f32", "f16", "bf16"}
COMPLEX = {"c64", "c128"}
PROFILES = ["plain", "bits", "special"]
GUARD = 0xA5
MARGIN = 64

REDUCIBLE = [
    (dtype, op)
    for dtype in DTYPES
    for op in OPS
    if dtype != "byte1"
    and not (op == "avg" and dtype == "bool")
    and not (op in ("min", "max") and dtype in COMPLEX)
    and not (op in ("band", "bor", "bxor") and dtype in FLOATS | COMPLEX)
]
IRREDUCIBLE = [(d, o) for d in DTYPES for o in OPS if (d, o) not in REDUCIBLE]


def width(dtype: str) -> int:
    """Bytes of one element."""
    return TORCH[dtype].itemsize


def code(dtype: str) -> int:
    return int(_native.DTYPES[dtype])


def op_code(op: str) -> int:
    return int(_native.OPS[op])


def _special(dtype: str) -> torch.Tensor:
    """Rows of bytes, one value each."""
    size = width(dtype)
    if dtype in FLOATS | COMPLEX:
        real = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
        about = torch.finfo(TORCH[real])
        least = float(torch.tensor([1], dtype=torch.int64).view(torch.float64)[0])
        subnormal = {"f16": 6e-8, "bf16": 1e-40, "f32": 1e-45}.get(real, least)
        one = [0.0, -0.0, 1.0, -1.5, torch.inf, -torch.inf, torch.nan, subnormal, -subnormal]
        one += [about.max, about.min, about.tiny, about.eps, 1 + about.eps, 3.1, -1e-3]
        values = torch.tensor(one, dtype=torch.float64).to(TORCH[real])
        if dtype in COMPLEX:
            values = torch.complex(values.repeat(3), torch.cat([values, values.flip(0), values]))
        return values.view(torch.uint8).reshape(-1, size)
    ends = [b"\0" * size, b"\1" + b"\0" * (size - 1)]
    if dtype != "bool":
        ends += [b"\xff" * size, b"\0" * (size - 1) + b"\x80", b"\xff" * (size - 1) + b"\x7f"]
        ends += [b"\7" + b"\0" * (size - 1), b"\xf8" + b"\xff" * (size - 1)]
    return torch.tensor([list(end) for end in ends], dtype=torch.uint8)


_SPECIAL = {dtype: _special(dtype) for dtype in DTYPES}


def values(dtype: str, count: int, seed: int, profile: str = "plain") -> torch.Tensor:
    """`count` random elements; equal arguments give equal bits in every process."""
    chance = torch.Generator().manual_seed(seed)
    if profile == "special":
        table = _SPECIAL[dtype]
        picked = table[torch.randint(0, len(table), (count,), generator=chance)]
        return picked.reshape(-1).view(TORCH[dtype])
    if profile == "plain" and dtype in FLOATS | COMPLEX:
        lanes = count * (2 if dtype in COMPLEX else 1)
        drawn = torch.randn(lanes, generator=chance)
        if dtype in COMPLEX:
            wide = torch.float64 if dtype == "c128" else torch.float32
            return drawn.to(wide).view(TORCH[dtype])
        return drawn.to(TORCH[dtype])
    noise = torch.randint(0, 256, (count * width(dtype),), generator=chance, dtype=torch.uint8)
    return (noise & 1 if dtype == "bool" else noise).view(TORCH[dtype])


@dataclass(frozen=True)
class Buffer:
    """Elements in memory with a fence on both sides, `offset` elements off an aligned address."""

    memory: torch.Tensor  # uint8
    tensor: torch.Tensor

    @property
    def pointer(self) -> int:
        return int(self.tensor.data_ptr())

    def fence_stands(self) -> bool:
        """Whether no byte beside the elements has been written."""
        start = self.pointer - self.memory.data_ptr()
        end = start + self.tensor.numel() * self.tensor.element_size()
        return bool((self.memory[:start] == GUARD).all() and (self.memory[end:] == GUARD).all())


def buffer(content: torch.Tensor, offset: int = 0) -> Buffer:
    size = content.element_size()
    start = MARGIN + offset * size
    memory = torch.full((start + content.numel() * size + MARGIN,), GUARD, dtype=torch.uint8)
    tensor = memory[start : start + content.numel() * size].view(content.dtype)
    tensor.copy_(content)
    return Buffer(memory, tensor)


def blank(dtype: str, count: int, offset: int = 0) -> Buffer:
    """Where something is to be written: filled with a pattern that is none of the values."""
    return buffer(values(dtype, count, seed=0xB1A4C), offset)


def same_bits(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.equal(raw(got), raw(expected))


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the elements."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def reference(parts: list[torch.Tensor], op: str) -> torch.Tensor:
    """The documented result of a reduction over the seats' parts."""
    return reduce_in_seat_order(parts, op).reshape(-1)
