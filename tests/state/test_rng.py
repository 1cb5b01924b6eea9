"""What is drawn after a restore is what was drawn after the capture."""

import random
import subprocess
import sys

import numpy
import pytest
import torch

from trainmover.errors import ProtocolError
from trainmover.state import encode, rng


def draws() -> list[float]:
    return [
        torch.rand(1).item(),
        torch.randn(3).sum().item(),
        random.random(),
        random.gauss(0, 1),
        float(numpy.random.rand()),
        float(numpy.random.normal()),
    ]


@pytest.mark.parametrize("before", range(3))
def test_the_same_numbers_are_drawn_again(before: int) -> None:
    for _ in range(before):  # Gaussian draws leave half a pair behind.
        draws()
    state = rng.capture()
    expected = draws()
    draws()
    rng.restore(state)
    assert rng.capture() == state
    assert draws() == expected


def test_capturing_draws_nothing() -> None:
    state = rng.RngState.now()
    assert rng.RngState.now() == state
    torch.rand(1)
    assert rng.RngState.now() != state
    state.restore()
    assert rng.RngState.now() == state


def test_another_process_draws_the_same(tmp_path: object) -> None:
    state = rng.capture()
    code = (
        "import sys, random, torch; from trainmover.state import rng;"
        "rng.restore(bytes.fromhex(sys.stdin.read()));"
        "import numpy; print(torch.rand(1).item(), random.random(), numpy.random.rand())"
    )
    expected = torch.rand(1).item(), random.random(), numpy.random.rand()
    result = subprocess.run(
        [sys.executable, "-c", code], input=state.hex(), capture_output=True, text=True, check=True
    )
    assert tuple(map(float, result.stdout.split())) == expected


def test_a_normal_number_that_numpy_keeps_back_is_not_forgotten() -> None:
    numpy.random.seed(3)
    empty = numpy.random.get_state()
    rng.capture()  # Whoever looks at the words alone has seen this state.
    full = (*empty[:3], 1, 0.4)
    numpy.random.set_state(full)
    state = rng.capture()
    numpy.random.seed(9)
    rng.restore(state)
    assert numpy.random.standard_normal() == 0.4
    assert rng.capture() != state
    numpy.random.set_state(empty)
    assert rng.capture() != state


def begin(job: int, rank: int) -> list[float]:
    rng.seed_as(job, rank)
    return draws()


def test_a_rank_begins_with_numbers_of_its_own_and_the_same_in_every_process() -> None:
    first, other, again = begin(7, 0), begin(7, 1), begin(7, 0)
    assert first == again
    for another in (other, begin(8, 0)):
        assert all(a != b for a, b in zip(first, another, strict=True))


@pytest.mark.parametrize("damage", [b"", b"\x95", b"x" * 9000])
def test_other_bytes_are_refused(damage: bytes) -> None:
    with pytest.raises(ProtocolError):
        rng.restore(damage)


@pytest.mark.parametrize("drawn", range(4))
def test_the_words_of_python_are_those_it_gives(drawn: int) -> None:
    random.seed(drawn)
    for _ in range(drawn):
        random.gauss(0, 1)
    for _ in range(2):  # The second time it is not asked.
        state = rng._decoder.decode(rng.capture())
        _, words, kept_back = random.getstate()
        assert rng._WORDS.unpack(state.python) == words
        assert state.python_gauss == kept_back


def test_python_is_not_asked_again_while_nobody_draws() -> None:
    before = rng.capture()
    known = rng._python
    assert known is not None
    assert known.memory is not None
    known.words, words = b"as known", known.words
    assert rng.capture() is before  # No generator is asked.
    torch.rand(1)
    assert rng._decoder.decode(rng.capture()).python == b"as known"
    known.words = words
    rng.restore(before)
    assert rng.capture() == before


PYTHONS = [
    lambda: random.random(),
    lambda: random.seed(3),
    lambda: random.gauss(0, 1),
    lambda: random.gauss(0, 1),  # Half of them only take what was kept back.
    lambda: random.getrandbits(7),
    lambda: random.shuffle([1, 2, 3]),
    lambda: random.setstate(random.Random(8).getstate()),
]


def test_whatever_python_draws_shows_at_once() -> None:
    random.seed(5)
    known = rng.capture()
    for draw in PYTHONS:
        draw()
        before, known = known, rng.capture()
        assert known != before
        state = rng._decoder.decode(known)
        assert rng._WORDS.unpack(state.python) == random.getstate()[1]
        assert state.python_gauss == random.getstate()[2]


def test_another_generator_behind_pythons_functions_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(random.Random):
        pass

    for other in (random.Random(9), Own(10)):
        monkeypatch.setattr(random, "getstate", other.getstate)
        for _ in range(2):
            other.random()
            state = rng._decoder.decode(rng.capture())
            assert rng._WORDS.unpack(state.python) == other.getstate()[1]


def test_another_generator_behind_numpys_functions_is_seen() -> None:
    before = rng.capture()
    old = numpy.random.get_bit_generator()
    try:
        numpy.random.set_bit_generator(numpy.random.MT19937(5))
        assert rng.capture() != before
        numpy.random.set_bit_generator(numpy.random.PCG64(5))
        assert rng.capture() != before
    finally:
        numpy.random.set_bit_generator(old)


@pytest.mark.parametrize("kind", ["PCG64", "Philox", "SFC64", "MT19937"])
def test_another_generator_behind_numpys_functions_goes_with_the_rank(kind: str) -> None:
    old = numpy.random.get_bit_generator()
    make = getattr(numpy.random, kind)
    try:
        numpy.random.set_bit_generator(make(5))
        state, numbers = rng.capture(), numpy.random.rand(3)
        assert rng.capture() != state
        numpy.random.set_bit_generator(old if kind != "MT19937" else numpy.random.PCG64(1))
        rng.restore(state)
        assert numpy.random.rand(3).tolist() == numbers.tolist()
        rng.seed_as(7, 0)  # As a new run of the script finds it.
        assert type(numpy.random.get_bit_generator()).__name__ == "MT19937"
    finally:
        numpy.random.set_bit_generator(old)


@pytest.mark.parametrize("numpys", [b"", b"\x01", encode.encode({"bit_generator": "rand"})])
def test_a_generator_that_numpy_has_not_is_malformed(numpys: bytes) -> None:
    state = rng._decoder.decode(rng.capture())
    state.numpy = numpys
    with pytest.raises(ProtocolError):
        rng.restore(rng._encoder.encode(state))
