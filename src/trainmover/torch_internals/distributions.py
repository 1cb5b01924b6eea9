# SPDX-License-Identifier: Apache-2.0
"""What torch's distributions and transforms keep that is none of what they are made with."""

from torch.distributions import transforms

REMEMBERED = frozenset({"_cached_x_y", "_validate_args"})
"""What they have once they were asked, and whether they look at what they are given."""


def leads_back(value: object, name: str) -> bool:
    """Whether this attribute leads from a transform to the inverse one that was made of it when it
    was asked for."""
    return name == "_inv" and not isinstance(value, transforms._InverseTransform)
