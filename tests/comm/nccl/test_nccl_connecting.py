"""What the proof of a communicator takes of a device, which training has filled: a library that
notes what it is asked, and adds nothing."""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from trainmover.comm.nccl.connecting import check_same, prove
from trainmover.errors import StateMismatch

MIB = 1 << 20


class Asked:
    """Bytes of the buffers that each call reads or fills, all seats' together."""

    def __init__(self, seat: int, size: int) -> None:
        self.seat, self.size = seat, size
        self.whole: list[int] = []
        self.library = SimpleNamespace(
            all_gather=lambda at, to, count, kind, *on: self.whole.append(count * size),
            reduce_scatter=self._reduce_scatter,
            all_reduce=lambda at, to, count, *rest: self.whole.append(4 * count),
        )

    def _reduce_scatter(self, at: int, to: int, count: int, *rest: Any) -> None:
        self.whole.append(4 * count * self.size)
        ctypes.memmove(to, at, 4 * count)

    def on_device(self, tensor: Tensor) -> Tensor:
        return tensor

    def run_now(self, *calls: Callable[[Any], None]) -> None:
        for call in calls:
            call((0, 0))


@pytest.mark.parametrize("size", [1, 2, 3, 8, 1_000, 16_384])
def test_it_takes_as_much_for_many_seats_as_for_few(size: int) -> None:
    session = Asked(0, size)
    prove(session)  # type: ignore[arg-type]
    assert len(session.whole) == 12
    assert 16 * MIB <= max(session.whole) < 16 * MIB + 4 * size


def test_seats_add_different_numbers_and_each_the_same_ones_again() -> None:
    def proof(seat: int) -> str:
        return prove(Asked(seat, 3))  # type: ignore[arg-type]

    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert proof(0) == proof(0) != proof(1)
    assert torch.equal(before, torch.get_rng_state())


def test_the_first_epoch_has_nothing_to_be_compared_with() -> None:
    check_same("world", "", "1")
    check_same("world", "1", "1")
    with pytest.raises(StateMismatch, match="group world"):
        check_same("world", "1", "2")
