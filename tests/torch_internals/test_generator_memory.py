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


def end_of_words(generator: torch.Generator) -> int:
    """Where in its memory the kept normal numbers begin: how much is free behind them differs."""
    state = bytes(generator.get_state().tolist())
    words = b"".join(state[at : at + 4] for at in range(24, 24 + 624 * 8, 8))
    return memory_of(generator).read().index(words) + len(words)


def test_memory_that_hides_a_part_is_not_taken_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where kept normal numbers lay somewhere else: what follows the words is cut off."""
    end = 16 + end_of_words(torch.Generator())
    for kept in (0, struct.calcsize("f?3x")):
        monkeypatch.setattr(generators, "_size_at", lambda at, kept=kept: end + kept)
        assert not generators._shows_all(torch.Generator())
