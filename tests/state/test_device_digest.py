"""The hash of what lies on a device: integer sums, the same whatever adds them."""

import random
from collections.abc import Iterator

import pytest
import torch
import xxhash

from trainmover.state import device_digest, digest, fingerprint

SLICE = 64
MASK = (1 << 64) - 1


def by_chance(place: int) -> int:
    word = place * 0x9E3779B97F4A7C15 & MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return (word ^ word >> 31) | 1


def by_hand(data: bytes) -> bytes:
    """The formula, in Python's integers."""
    whole = len(data) // 8
    words = [int.from_bytes(data[8 * i : 8 * i + 8], "little") for i in range(whole)]
    sums = [0, 0]
    for place, word in enumerate(words):
        exchanged = (word << 32 | word >> 32) & MASK
        sums[0] += word * by_chance(2 * place + 1)
        sums[1] += exchanged * by_chance(2 * place + 2)
    found = xxhash.xxh3_128(len(data).to_bytes(8, "little"))
    if words:
        found.update(b"".join((s & MASK).to_bytes(8, "little") for s in sums))
    found.update(data[8 * whole :])
    return found.digest()


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 16, 1000, 4099])
def test_it_is_the_formula(length: int) -> None:
    data = random.Random(length).randbytes(length)
    tensor = torch.tensor(list(data), dtype=torch.uint8)
    assert device_digest.digest(tensor) == by_hand(data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_strides_and_places_in_memory_do_not_matter(dtype: torch.dtype) -> None:
    values = torch.randint(0, 2, (33, 17)).to(dtype)
    turned = values.t().contiguous().t()
    moved = torch.zeros(33 * 17 + 3, dtype=dtype)[3:].view(33, 17).copy_(values)
    one = device_digest.digest(values)
    assert one == device_digest.digest(turned) == device_digest.digest(moved)


@pytest.fixture
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(device_digest, "SLICE_WORDS", SLICE)
    device_digest._multipliers.cache_clear()
    yield
    device_digest._multipliers.cache_clear()


@pytest.mark.usefixtures("_small_slices")
def test_what_differs_differs() -> None:
    """Single bits, two highest bits, exchanged words, and bits of neighbouring slices."""
    base = torch.randint(-(2**62), 2**62, (SLICE + 70,))
    seen = {device_digest.digest(base)}
    changes = [((place, bit),) for place in (0, 5, SLICE, SLICE + 69) for bit in range(64)]
    changes += [((3, bit), (9, bit)) for bit in range(64)]
    changes += [((3, bit), (SLICE + 3, bit)) for bit in range(64)]
    for change in changes:
        other = base.clone()
        for place, bit in change:
            other[place] ^= torch.tensor(-(2**63) if bit == 63 else 1 << bit)
        seen.add(device_digest.digest(other))
    swapped = base.clone()
    swapped[[0, 1]] = base[[1, 0]]
    seen.add(device_digest.digest(swapped))
    slices = torch.cat([base[SLICE:], base[:SLICE]])
    seen.add(device_digest.digest(slices))
    seen.add(device_digest.digest(torch.cat([base, torch.zeros(1, dtype=torch.int64)])))
    assert len(seen) == len(changes) + 4


def test_the_host_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.arange(100.0)
    assert digest.hash_of(tensor) == xxhash.xxh3_128_digest(tensor.numpy().tobytes())
    at_home = fingerprint.hash_of(tensor)
    monkeypatch.setattr(device_digest, "lies_elsewhere", lambda tensor: True)
    assert digest.hash_of(tensor) == device_digest.digest(tensor)
    assert fingerprint.hash_of(tensor) != at_home
