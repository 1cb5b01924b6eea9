"""A file of helpers, as scripts have one: it changes what it is given."""

from collections.abc import Iterable

from torch import Tensor


def advance(averages: Iterable[Tensor], params: Iterable[Tensor], rate: float) -> None:
    for mean, param in zip(averages, params, strict=True):
        mean.mul_(rate).add_(param.detach(), alpha=1 - rate)
