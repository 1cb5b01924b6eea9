"""The hash of what lies on a device: integer sums, the same whatever adds them."""

import random
from collections.abc import Iterator

import pytest
import torch
import xxhash

from trainmover.state.proof import device_digest, digest, fingerprint

SLICE = 64
MASK = (1 << 64) - 1


def digest_of(tensor: torch.Tensor) -> bytes:
    [found] = device_digest.digests([tensor])
    return found


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
    assert digest_of(tensor) == by_hand(data)


def test_many_at_once_are_each_as_alone() -> None:
    many = [torch.arange(float(count)) for count in (0, 1, 5, 0, 4099)]
    many += [torch.tensor([True, False, True]), torch.randn(7, 3).t(), torch.tensor(2.0)]
    assert device_digest.digests(many) == [digest_of(tensor) for tensor in many]
    assert device_digest.digests([]) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_strides_and_places_in_memory_do_not_matter(dtype: torch.dtype) -> None:
    values = torch.randint(0, 2, (33, 17)).to(dtype)
    turned = values.t().contiguous().t()
    moved = torch.zeros(33 * 17 + 3, dtype=dtype)[3:].view(33, 17).copy_(values)
    one = digest_of(values)
    assert one == digest_of(turned) == digest_of(moved)


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
    seen = {digest_of(base)}
    changes = [((place, bit),) for place in (0, 5, SLICE, SLICE + 69) for bit in range(64)]
    changes += [((3, bit), (9, bit)) for bit in range(64)]
    changes += [((3, bit), (SLICE + 3, bit)) for bit in range(64)]
    for change in changes:
        other = base.clone()
        for place, bit in change:
            other[place] ^= torch.tensor(-(2**63) if bit == 63 else 1 << bit)
        seen.add(digest_of(other))
    swapped = base.clone()
    swapped[[0, 1]] = base[[1, 0]]
    seen.add(digest_of(swapped))
    slices = torch.cat([base[SLICE:], base[:SLICE]])
    seen.add(digest_of(slices))
    seen.add(digest_of(torch.cat([base, torch.zeros(1, dtype=torch.int64)])))
    assert len(seen) == len(changes) + 4


def test_hosts_and_devices_in_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.arange(9.0), torch.arange(5), torch.arange(7.0)]
    at_home = digest.hashes_of(tensors), fingerprint.hashes_of(tensors)
    monkeypatch.setattr(device_digest, "lies_elsewhere", lambda tensor: len(tensor) == 5)
    for was, now in zip(
        at_home, (digest.hashes_of(tensors), fingerprint.hashes_of(tensors)), strict=True
    ):
        assert (was[0], was[2]) == (now[0], now[2])
        assert was[1] != now[1]


def test_the_host_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.arange(100.0)
    assert digest.hashes_of([tensor])[0] == xxhash.xxh3_128_digest(tensor.numpy().tobytes())
    at_home = fingerprint.hashes_of([tensor])[0]
    monkeypatch.setattr(device_digest, "lies_elsewhere", lambda tensor: True)
    assert digest.hashes_of([tensor])[0] == digest_of(tensor)
    assert fingerprint.hashes_of([tensor])[0] != at_home
