"""The kernels of every instruction set give the documented bits."""

from collections.abc import Iterator

import pytest
from native_data import (
    IRREDUCIBLE,
    PROFILES,
    REDUCIBLE,
    blank,
    buffer,
    code,
    op_code,
    reference,
    same_bits,
    values,
)

from trainmover import _native


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _native.features()["isa"]
    if not _native.force_isa(request.param):
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    assert _native.force_isa(before)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_kernel_gives_the_bits_of_the_reference(isa: str, profile: str) -> None:
    for turn, (dtype, op) in enumerate(REDUCIBLE):
        seats, count = 1 + turn % 5, [0, 1, 15, 64, 777][turn % 5]
        parts = [values(dtype, count, turn * 8 + seat, profile) for seat in range(seats)]
        held = [buffer(part, turn % 3) for part in parts]
        out = held[0] if turn % 2 else blank(dtype, count, 1)
        inputs = [one.pointer for one in held]
        _native.reduce(inputs, out.pointer, count, code(dtype), op_code(op))
        assert same_bits(out.tensor, reference(parts, op)), (isa, dtype, op, seats, count)
        assert out.fence_stands()


def test_what_cannot_be_reduced_is_refused() -> None:
    held = blank("f64", 4)
    for dtype, op in IRREDUCIBLE:
        with pytest.raises(ValueError, match="not defined"):
            _native.reduce([held.pointer], held.pointer, 1, code(dtype), op_code(op))
