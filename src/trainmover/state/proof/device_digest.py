# SPDX-License-Identifier: Apache-2.0
"""Hashes of tensors where they lie: of memory of a device only a few numbers come to the host.

XXH3 reads bytes one behind the other, on one core, behind a copy over the bus: for what lies on a
GPU that would be most of a round's or a move's time. So there it is sums of products, which any
number of threads may add in any order, since integers wrap the same way everywhere:

    words w of 8 bytes, multipliers r and s (odd, as if by chance, one for each place in a slice)
    first  = sum of w * r        second = sum of w with its halves exchanged * s    modulo 2**64

A word that differs always differs in both. Two that differ cancel in the first sum if they do so in
nothing but their highest bits; in the second those are no longer the highest. Sums of slices,
length and the bytes behind the last whole word then go through XXH3, in order.
"""

import functools
from collections.abc import Sequence

import torch
import xxhash
from torch import Tensor

from trainmover.state import tensor_bytes

SLICE_WORDS = 1 << 20
"""So many words are multiplied at once: what that takes of a device's memory beside the state is
three times as much, and the multipliers twice."""

_STRIDE = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def lies_elsewhere(tensor: Tensor) -> bool:
    """Whether its bytes would have to be copied to be hashed by the host."""
    return tensor.device.type not in ("cpu", "meta")


def of_distant(tensors: Sequence[Tensor]) -> dict[int, bytes]:
    """By number, those of the tensors that lie elsewhere."""
    numbers = [n for n, tensor in enumerate(tensors) if lies_elsewhere(tensor)]
    return dict(zip(numbers, digests([tensors[n] for n in numbers]), strict=True))


def digests(tensors: Sequence[Tensor]) -> list[bytes]:
    """16 bytes for each, of its bytes in logical order; on whatever device the same.

    The host waits once for all tensors of a device, and not for each.
    """
    sums = [_sums(tensor) for tensor in tensors]
    summed = _to_host([own for own, _ in sums])
    rests = _to_host([rest for _, rest in sums])
    found = []
    for tensor, own, rest in zip(tensors, summed, rests, strict=True):
        hashed = xxhash.xxh3_128(tensor.nbytes.to_bytes(8, "little"))
        hashed.update(own)
        hashed.update(rest)
        found.append(hashed.digest())
    return found


def _sums(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Two numbers for each slice, and the bytes behind the last whole word."""
    flat = tensor_bytes.flat_bytes(tensor)
    whole = len(flat) // 8 * 8
    words, rest = _words(flat[:whole]), flat[whole:].clone()  # A view would keep a whole copy.
    sums: list[Tensor] = []
    for start in range(0, len(words), SLICE_WORDS):
        part = words[start : start + SLICE_WORDS]
        first, second = _multipliers(part.device)
        sums.append((part * first[: len(part)]).sum())
        sums.append((_exchanged(part) * second[: len(part)]).sum())
    own = torch.stack(sums) if sums else words[:0]
    return own.view(torch.uint8), rest


def _to_host(parts: Sequence[Tensor]) -> list[bytes]:
    """Their bytes: one copy from each device."""
    by_device: dict[torch.device, list[int]] = {}
    for number, part in enumerate(parts):
        by_device.setdefault(part.device, []).append(number)
    found = [b""] * len(parts)
    for numbers in by_device.values():
        joined = torch.cat([parts[number] for number in numbers]).cpu().numpy().tobytes()
        at = 0
        for number in numbers:
            found[number] = joined[at : at + len(parts[number])]
            at += len(parts[number])
    return found


def _words(flat: Tensor) -> Tensor:
    """Bytes as integers; a copy where they do not lie as those must."""
    if flat.storage_offset() % 8:
        flat = flat.clone()
    return flat.view(torch.int64)


def _exchanged(words: Tensor) -> Tensor:
    return words.view(torch.int32).view(-1, 2).flip(1).view(-1).view(torch.int64)


@functools.cache
def _multipliers(device: torch.device) -> tuple[Tensor, Tensor]:
    """splitmix64 of each place, made odd: nothing of them is left to a generator of torch's."""
    places = torch.arange(1, 2 * SLICE_WORDS + 1)
    word = places * _signed(_STRIDE)
    word = (word ^ _shifted(word, 30)) * _signed(_FIRST)
    word = (word ^ _shifted(word, 27)) * _signed(_SECOND)
    word = (word ^ _shifted(word, 31)) | 1
    return word[0::2].to(device), word[1::2].to(device)


def _signed(word: int) -> int:
    """As torch's integers have it."""
    return word - (1 << 64) if word >> 63 else word


def _shifted(words: Tensor, by: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (words >> by) & ((1 << 64 - by) - 1)
