"""A snapshot is one block: what is in it comes out again, and damage is found."""

import pytest
import torch
from torch import Tensor

from trainmover.errors import ProtocolError, StateMismatch
from trainmover.state.snapshot import Snapshot


def tensors() -> list[Tensor]:
    return [
        torch.arange(7, dtype=torch.float64),
        torch.ones(3, 5, dtype=torch.bfloat16).t(),
        torch.empty(0),
        torch.tensor(True),
    ]


def sealed(room: bytearray | None = None) -> Snapshot:
    snapshot = Snapshot.of(3, 41, b"header", tensors(), room)
    snapshot.seal()
    return snapshot


def test_a_block_gives_back_what_was_put_in() -> None:
    again = Snapshot.from_block(bytearray(sealed().block))
    assert (again.rank, again.step, again.header) == (3, 41, b"header")
    for kept, tensor in zip(again.tensors, tensors(), strict=True):
        assert torch.equal(kept, tensor.contiguous().view(-1).view(torch.uint8))


def test_it_is_a_copy() -> None:
    source = tensors()
    snapshot = Snapshot.of(0, 1, b"", source, None)
    source[0].zero_()
    assert snapshot.tensors[0].any()


def test_memory_of_an_older_one_is_used_again() -> None:
    first = sealed()
    second = sealed(first.room)
    assert second.room is first.room


@pytest.mark.parametrize("place", [0, 8, -1, -20, -40])
def test_one_wrong_byte_anywhere_is_found(place: int) -> None:
    block = bytearray(sealed().block)
    block[place] ^= 4
    with pytest.raises(StateMismatch, match="damaged"):
        Snapshot.from_block(block)


@pytest.mark.parametrize("size", [0, 10, 23])
def test_what_is_too_short_is_none(size: int) -> None:
    with pytest.raises(ProtocolError, match="too short"):
        Snapshot.from_block(bytearray(size))


def test_a_cut_off_block_is_found() -> None:
    with pytest.raises(StateMismatch, match="damaged"):
        Snapshot.from_block(bytearray(sealed().block[:-5]))
