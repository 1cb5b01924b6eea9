"""Values that are made up look like those that were there."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainmover.sandbox.moments import CHUNK, Moments, moments_of, refill

numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(numbers, min_size=1, max_size=40))
def test_moments_are_those_of_the_values_and_possible(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float64)
    moments = moments_of(tensor)
    assert moments.possible
    assert (moments.low, moments.high) == (min(values), max(values))
    scale = max(map(abs, values)) + 1e-300
    assert moments.mean == pytest.approx(tensor.mean().item(), abs=1e-9 * scale)
    deviation = tensor.std(unbiased=False).item()
    assert moments.deviation == pytest.approx(deviation, rel=1e-6, abs=1e-7 * scale)


@given(st.lists(numbers, min_size=1, max_size=40), st.integers(0, 2**63 - 1))
def test_what_is_made_up_stays_in_range(values: list[float], seed: int) -> None:
    output = torch.zeros(3000, dtype=torch.float64)
    moments = moments_of(torch.tensor(values, dtype=torch.float64))
    refill(output, moments, seed)
    assert output.isfinite().all()
    assert moments.low <= output.min().item()
    assert output.max().item() <= moments.high


SAMPLES = {
    "bell": torch.randn(20_000, generator=torch.Generator().manual_seed(1)) * 3 + 7,
    "positive": torch.rand(20_000, generator=torch.Generator().manual_seed(1)) ** 8,
    "rare": (torch.arange(20_000) % 20 == 0).float() * 5 - 1,
    "constant": torch.full((20_000,), -2.5),
    "zeros": torch.zeros(20_000),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_is_made_up_has_the_mean_and_deviation(name: str, dtype: torch.dtype) -> None:
    moments = moments_of(SAMPLES[name].to(dtype))
    output = torch.empty(20_000, dtype=dtype)
    refill(output, moments, seed=5)
    again = moments_of(output)
    near = 0.05 * moments.deviation + 0.01 * abs(moments.mean)
    assert again.mean == pytest.approx(moments.mean, abs=near)
    assert again.deviation == pytest.approx(moments.deviation, abs=near)


def test_a_tensor_larger_than_a_chunk_is_seen_whole_and_filled_whole() -> None:
    tensor = torch.zeros(2 * CHUNK + 3)
    tensor[-1] = 1000.0
    assert moments_of(tensor).high == 1000.0
    tensor.fill_(math.nan)
    refill(tensor, Moments(1.0, 0.5, -5.0, 5.0), seed=1)
    assert tensor.isfinite().all()


@pytest.mark.parametrize(
    ("values", "moments"),
    [
        ([1.0, math.nan, 3.0, math.inf], Moments(2.0, 1.0, 1.0, 3.0)),
        ([math.nan, -math.inf], Moments(0.0, 0.0, 0.0, 0.0)),
        ([1.7e308, 1.7e308, -1.7e308, -1.7e308], Moments(0.0, 8.5e307, -1.7e308, 1.7e308)),
    ],
)
def test_what_is_not_finite_or_hardly_is_no_obstacle(values: list[float], moments: Moments) -> None:
    assert moments_of(torch.tensor(values, dtype=torch.float64)) == moments
    refill(torch.zeros(10, dtype=torch.float64), moments, seed=1)


def test_parts_of_other_tensors_are_filled_in_place() -> None:
    whole = torch.zeros(6, 6, dtype=torch.complex64)
    refill(whole[:, ::2], Moments(2.0, 0.0, 2.0, 2.0), seed=1)
    assert whole[:, ::2].eq(2 + 2j).all()
    assert whole[:, 1::2].eq(0).all()
    refill(torch.zeros(0), Moments(2.0, 0.0, 2.0, 2.0), seed=1)
