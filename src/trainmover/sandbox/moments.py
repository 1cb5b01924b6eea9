# SPDX-License-Identifier: Apache-2.0
"""Large floating-point payloads in four numbers, and values that have the same four.

A shadow run must see values that are possible: zeros make NaN where a script divides by them, and
where all recorded values were positive, a negative one does under a logarithm. So values are
refilled within the recorded range, with the recorded mean and deviation. They are drawn from a
generator of their own.
"""

import math

import msgspec
import torch
from torch import Tensor

CHUNK = 1 << 18
"""Elements looked at in one go: a chunk in f64 stays in the processor's cache."""

TILE = 1 << 18
"""Elements drawn anew; a larger tensor repeats them."""


class Moments(msgspec.Struct, frozen=True, array_like=True):
    """Of the finite elements of one tensor, in f64. All zero when there are none."""

    mean: float
    deviation: float
    low: float
    high: float

    @property
    def possible(self) -> bool:
        """Whether any tensor can have them."""
        known = all(map(math.isfinite, (self.mean, self.deviation, self.low, self.high)))
        return known and self.low <= self.mean <= self.high and self.deviation >= 0.0


@torch.no_grad()
def moments_of(tensor: Tensor) -> Moments:
    """One pass over the tensor; it may be on any device and of any floating or complex type."""
    count, total, squares, low, high = 0, 0.0, 0.0, math.inf, -math.inf
    for chunk in torch.split(_real(tensor.detach()).reshape(-1), CHUNK):
        values = chunk.to(torch.float64)
        first = values.sum()
        if not math.isfinite(first.item()):
            values = values[values.isfinite()]
            first = values.sum()
        if values.numel() == 0:
            continue
        least, most = torch.aminmax(values)
        count += values.numel()
        total += first.item()
        squares += torch.dot(values, values).item()
        low, high = min(low, least.item()), max(high, most.item())
    return _moments(count, total, squares, low, high) if count else Moments(0.0, 0.0, 0.0, 0.0)


def _moments(count: int, total: float, squares: float, low: float, high: float) -> Moments:
    """Sums of numbers near the end of f64's range overflow: then the middle of the range."""
    mean = total / count
    if not math.isfinite(mean):
        mean = low / 2 + high / 2
    mean = min(max(mean, low), high)
    variance = squares / count - mean * mean
    widest = (mean - low) * (high - mean)  # No more is possible between low and high.
    if not math.isfinite(variance):
        return Moments(mean, high / 4 - low / 4, low, high)
    return Moments(mean, math.sqrt(min(max(variance, 0.0), max(widest, 0.0))), low, high)


@torch.no_grad()
def refill(output: Tensor, moments: Moments, seed: int) -> None:
    """Fill `output` with finite values of these moments. Equal seeds give equal values."""
    target = _real(output.detach())
    flat = target.view(-1) if target.is_contiguous() else torch.empty_like(target).view(-1)
    if flat.numel() == 0:
        return
    generator = torch.Generator().manual_seed(seed)
    tile = _draw(moments, min(flat.numel(), TILE), generator).to(flat.dtype).to(flat.device)
    for part in torch.split(flat, TILE):
        part.copy_(tile[: part.numel()])
    if not target.is_contiguous():
        target.copy_(flat.view(target.shape))


def _draw(moments: Moments, count: int, generator: torch.Generator) -> Tensor:
    """[count] float64 within [low, high]."""
    mean, deviation, low, high = moments.mean, moments.deviation, moments.low, moments.high
    chance = torch.rand(count, generator=generator, dtype=torch.float64)
    reach, slack = math.sqrt(3.0) * deviation, 0.01 * deviation
    if mean - reach >= low - slack and mean + reach <= high + slack:
        return chance.mul_(2.0).sub_(1.0).mul_(reach).add_(mean).clamp_(low, high)
    # Too lopsided for an even spread: two values, the rarer of them further away.
    below = mean - low
    if high > mean:
        below = min(below, max(deviation, deviation * (deviation / (high - mean))))
    above = deviation * (deviation / below) if below > 0.0 else 0.0
    rare = below / (below + above) if below + above > 0.0 else 0.0
    values = torch.full_like(chance, mean - below)
    values[chance < rare] = mean + above
    return values.clamp_(low, high)


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
