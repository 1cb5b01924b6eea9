# SPDX-License-Identifier: Apache-2.0
"""Whether a dict is by `id(...)` or `data_ptr()`.

Its keys are others in each process then, and what it holds counts, in its order. Numbers that only
look a little like such are keys as any others: all have to lie where a process on 64-bit Linux has
its memory.
"""

from collections.abc import Iterable

_ALIGNED = 16
_MEMORY = (
    range(0x5500 << 32, 0x5700 << 32),  # Of a program, on x86-64: objects come from there,
    range(0x7D00 << 32, 0x8000 << 32),  # and what was mapped, which tensors have.
    range(0xAAAA << 32, 0xAAAC << 32),  # The same on aarch64.
    range(0xFF00 << 32, 0x10000 << 32),
)


def are_addresses(keys: Iterable[object]) -> bool:
    """Whether all are; some there are."""
    found = False
    for key in keys:
        if type(key) is not int or key % _ALIGNED or not any(key in one for one in _MEMORY):
            return False
        found = True
    return found
