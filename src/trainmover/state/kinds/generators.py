# SPDX-License-Identifier: Apache-2.0
"""Generators of random numbers that a script makes for itself: torch's, numpy's and Python's.

None of them has a state_dict(), so each kind is asked in its own words. What comes out can be
encoded and is put back into an equal generator, here or in another process.
"""

import random
import struct
from typing import Any

import numpy
import torch

from trainmover.errors import StateMismatch, UserError

Generator = (
    torch.Generator
    | random.Random
    | numpy.random.Generator
    | numpy.random.RandomState
    | numpy.random.BitGenerator
)

_WORDS = struct.Struct("<625I")
_PYTHONS_VERSION = 3  # of what Random.getstate() gives


class KeptGenerator:
    """A generator as something that can be tracked."""

    def __init__(self, name: str, generator: Generator) -> None:
        """Raises UserError for one without a state."""
        if isinstance(generator, random.SystemRandom):
            raise UserError(
                f"`{name}` cannot be tracked: a SystemRandom draws from the system and has no "
                "state.",
                means="Its numbers cannot be drawn again: neither by a step that is made again nor "
                "by another machine.",
                do="Use random.Random(seed).",
            )
        self.generator = generator

    def state_dict(self) -> dict[str, Any]:
        return state_of(self.generator)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state(self.generator, state)


def is_generator(value: object) -> bool:
    """Whether it is one that has a state."""
    kind = type(value)  # Not the object: it may answer for itself.
    return issubclass(kind, Generator) and not issubclass(kind, random.SystemRandom)


def state_of(generator: Generator) -> dict[str, Any]:
    """What it will draw from. Costs a few microseconds, and of Mersenne Twisters a few tens."""
    if isinstance(generator, torch.Generator):
        return {"torch": generator.get_state().numpy().tobytes()}
    if isinstance(generator, random.Random):
        return {"python": _python_state(generator)}
    if isinstance(generator, numpy.random.RandomState):
        return {"numpy": generator.get_state(legacy=False)}
    bits = _bits(generator)
    return {"numpy": dict(bits.state), "spawned": _spawned(bits)}


def set_state(generator: Generator, state: dict[str, Any]) -> None:
    """Put back what `state_of` gave. Raises StateMismatch for the state of another kind."""
    try:
        if isinstance(generator, torch.Generator):
            generator.set_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
        elif isinstance(generator, random.Random):
            _set_python_state(generator, state["python"])
        elif isinstance(generator, numpy.random.RandomState):
            generator.set_state(state["numpy"])
        else:
            bits = _bits(generator)
            bits.state = state["numpy"]
            _spawn_until(bits, state["spawned"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StateMismatch(
            f"A {type(generator).__name__} was given the state of another generator: {error}.",
            means="It would draw other numbers than the rank.",
            do="A script must make the same generators for a rank wherever it runs.",
        ) from error


def _python_state(generator: random.Random) -> Any:
    version, words, gauss = state = generator.getstate()
    return (_WORDS.pack(*words), gauss) if version == _PYTHONS_VERSION else state


def _set_python_state(generator: random.Random, state: Any) -> None:
    if len(state) == 2:
        words, gauss = state
        state = _PYTHONS_VERSION, _WORDS.unpack(words), gauss
    generator.setstate(state)


def _bits(generator: Any) -> Any:
    return generator.bit_generator if isinstance(generator, numpy.random.Generator) else generator


def _spawned(bits: Any) -> int:
    """How many generators it has spawned: the next one follows from that."""
    seeds = bits.seed_seq
    return seeds.n_children_spawned if isinstance(seeds, numpy.random.SeedSequence) else 0


def _spawn_until(bits: Any, count: int) -> None:
    missing = count - _spawned(bits)
    if missing > 0:
        bits.seed_seq.spawn(missing)
    elif missing < 0:
        _take_back(bits, count)


def _take_back(bits: Any, count: int) -> None:
    """Children are only ever added to seeds, so it is given other ones, as a copy by pickle is."""
    seeds = bits.seed_seq
    again = numpy.random.SeedSequence(
        seeds.entropy,
        spawn_key=seeds.spawn_key,
        pool_size=seeds.pool_size,
        n_children_spawned=count,
    )
    try:
        bits.__setstate__((bits.state, again))
    except (TypeError, ValueError) as error:  # Before numpy 2.0 a copy had no seeds.
        raise StateMismatch(
            f"A numpy generator has spawned {_spawned(bits) - count} more than it had at the place "
            "it goes to.",
            means=f"Its next ones would be others: numpy {numpy.__version__} cannot take that "
            "back.",
            do="Install numpy 2, or spawn generators before the first step.",
        ) from error
