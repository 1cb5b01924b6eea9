"""Generators of a script's own: what is drawn after a state was put back is what was drawn then."""

import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from trainmover.errors import StateMismatch, UserError
from trainmover.state.kinds.generators import is_generator, set_state, state_of
from trainmover.state.tracked import Tracked

KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "torch": (torch.Generator, lambda g: torch.randn(1, generator=g).item()),
    "python": (random.Random, lambda g: (g.random(), g.gauss(0, 1))),
    "numpy": (numpy.random.default_rng, lambda g: (g.random(), g.normal())),
    "numpy's words": (
        lambda: numpy.random.Generator(numpy.random.MT19937()),
        lambda g: (g.random(), g.normal()),
    ),
    "numpy's old one": (numpy.random.RandomState, lambda g: (g.rand(), g.normal())),
    "numpy's bits": (numpy.random.Philox, lambda g: int(g.random_raw())),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tracked_generator_draws_the_same_on_another_machine(kind: str) -> None:
    make, draw = KINDS[kind]
    here, there = make(), make()
    assert is_generator(here)
    tracked, joiner = Tracked(), Tracked()
    tracked.add("g", here)
    joiner.add("g", there)
    for _ in range(3):  # Of a pair of normal numbers one is kept back.
        states = tracked.small_states()
        assert states.keys() == {"g"}
        expected = draw(here)
        draw(there)
        joiner.load_small(states)
        assert joiner.small_states() == states
        assert draw(there) == expected


def test_what_it_spawns_is_part_of_its_state() -> None:
    def child(generator: Any) -> float:
        return float(generator.spawn(1)[0].random())

    here, there = numpy.random.default_rng(1), numpy.random.default_rng(1)
    start = state_of(here)
    child(here), child(here)
    set_state(there, state_of(here))
    third = child(here)
    assert child(there) == third
    set_state(here, start)
    assert [child(here) for _ in range(3)][2] == third


def test_the_state_of_another_kind_is_refused() -> None:
    for other in (random.Random(), torch.Generator(), numpy.random.RandomState()):
        with pytest.raises(StateMismatch, match="state of another generator"):
            set_state(numpy.random.default_rng(), state_of(other))
    with pytest.raises(StateMismatch, match="state of another generator"):
        set_state(torch.Generator(), state_of(random.Random()))


def test_one_that_draws_from_the_system_is_refused() -> None:
    assert not is_generator(random.SystemRandom())
    with pytest.raises(UserError, match="`g` cannot be tracked: a SystemRandom"):
        Tracked().add("g", random.SystemRandom())
