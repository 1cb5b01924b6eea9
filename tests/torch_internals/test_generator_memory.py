"""A generator's memory shows whatever it draws."""

import struct

import pytest
import torch

from trainmover.asked import Pieces
from trainmover.torch_internals import generators


def memory_of(generator: torch.Generator) -> Pieces:
    places = generators.places_of(generator)
    if places is None:
        pytest.skip("this torch, or this system, does not show where a generator lies")
    return Pieces(*zip(*places, strict=True))


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 700])
def test_every_draw_shows(count: int) -> None:
    generator = torch.Generator().manual_seed(7)
    memory = memory_of(generator)
    for draw in (torch.rand, torch.randn):
        for _ in range(4):
            before = memory.read()
            assert memory.read() is before
            draw(count, generator=generator)
            assert memory.read() is not before


def test_a_state_that_is_set_shows() -> None:
    generator = torch.Generator().manual_seed(7)
    memory, state = memory_of(generator), generator.get_state()
    torch.randn(1, generator=generator)
    drawn = memory.read()
    generator.set_state(state)
    assert memory.read() != drawn


def test_memory_that_hides_a_part_is_not_taken_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where kept normal numbers lay somewhere else: what follows the words is cut off."""
    generator = torch.Generator()
    memory_of(generator)
    whole = generators._size_at(generator._cdata)  # type: ignore[attr-defined]
    for cut in (struct.calcsize("dd"), 600):
        monkeypatch.setattr(generators, "_size_at", lambda at, cut=cut: whole - 16 - cut)
        assert not generators._shows_all(torch.Generator())
