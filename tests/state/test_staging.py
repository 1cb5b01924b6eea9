"""Blocks between a device and the host, over the stand-in: neither read nor written too early."""

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fake_nccl import built

from trainmover.state import staging
from trainmover.state.staging import Staging

BLOCK = 4096


class FakeLane:
    """By a stream of the stand-in, which takes its time over a copy. waits: as it has to."""

    def __init__(self, *, waits: bool = True) -> None:
        self.dll: Any = ctypes.CDLL(str(built()))
        pointer, number = ctypes.c_void_p, ctypes.c_long
        self.dll.fakeStreamCreate.restype = self.dll.fakeEventCreate.restype = pointer
        self.dll.fakeCopy.argtypes = [pointer, pointer, ctypes.c_size_t, pointer]
        self.dll.fakeEventRecord.argtypes = [pointer, pointer]
        self.dll.fakeEventSynchronize.argtypes = [pointer, number]
        self.dll.fakeSet.argtypes = [ctypes.c_char_p, number]
        self.stream = self.dll.fakeStreamCreate()
        self.waits = waits

    def block(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8)

    def start(self, into: torch.Tensor, given: torch.Tensor, behind: object = None) -> int:
        self.dll.fakeCopy(into.data_ptr(), given.data_ptr(), len(given), self.stream)
        event = int(self.dll.fakeEventCreate())
        self.dll.fakeEventRecord(event, self.stream)
        return event

    def wait(self, event: int) -> None:
        while self.waits and self.dll.fakeEventSynchronize(event, 20_000):
            pass


@pytest.fixture
def lane() -> Iterator[FakeLane]:
    slow = FakeLane()
    slow.dll.fakeSet(b"copy_us", 2_000)
    yield slow
    slow.dll.fakeSet(b"copy_us", 0)


def copied(lane: FakeLane, length: int) -> bool:
    given = torch.randint(0, 256, (length,), dtype=torch.uint8)
    place = torch.zeros(length, dtype=torch.uint8)
    held = Staging(lane, BLOCK)
    held.copy(given, place)
    lane.waits = True
    last = torch.zeros(1, dtype=torch.uint8)
    lane.wait(lane.start(last, given[:1]))  # All copies are over: blocks may go.
    del held
    return torch.equal(given, place)


@pytest.mark.parametrize("length", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK, 20 * BLOCK + 17])
def test_what_comes_is_what_was_given(lane: FakeLane, length: int) -> None:
    assert copied(lane, length)


def test_a_block_that_is_read_too_early_is_seen(lane: FakeLane) -> None:
    lane.waits = False
    assert not copied(lane, 20 * BLOCK)


def test_a_block_that_is_used_again_too_early_is_seen(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: one block for two copies."""

    def one_block(self: Staging, flat: torch.Tensor, behind: object) -> Iterator[torch.Tensor]:
        self._blocks = [lane.block(BLOCK)] * staging.BLOCKS
        return stock(self, flat, behind)

    stock = Staging._through
    monkeypatch.setattr(Staging, "_through", one_block)
    lane.dll.fakeSet(b"copy_us", 0)
    given = torch.randint(0, 256, (200 * BLOCK,), dtype=torch.uint8)
    place = torch.zeros_like(given)
    Staging(lane, BLOCK).copy(given, place)
    assert not torch.equal(given, place)
