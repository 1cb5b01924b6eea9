"""What is drawn after a restore is what was drawn after the capture."""

import random
import subprocess
import sys

import numpy
import pytest
import torch

from trainmover.errors import ProtocolError
from trainmover.state import rng


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
