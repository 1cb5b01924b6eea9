# SPDX-License-Identifier: Apache-2.0
"""What a step has given its caller: its kind, as a loop that is passed by is given such a value."""

from typing import Any

import torch
from torch import Tensor

LOSS = "loss"
"""What a number is called that was returned, and not reported by a name."""
_A_NUMBER = torch.empty((), device="meta")


class Kinds:
    """What the step functions of a script give, as far as their first calls have shown. By their
    code, since a script may make its function anew for each of its passes."""

    def __init__(self) -> None:
        self._of: dict[object, Any] = {}

    def note(self, code: object, result: Any) -> None:
        """One call has given this."""
        is_tensor = isinstance(result, Tensor)
        self._of[code] = torch.empty_like(result, device="meta") if is_tensor else result

    def of(self, code: object) -> Any:
        """What the newest of these calls gave, a tensor without its data. Of others the usual: a
        loss, of which nothing is known."""
        return self._of.get(code, _A_NUMBER)


def number_of(result: Any) -> float | None:
    """The one number that it is, as a row has it; None if it is none."""
    if isinstance(result, Tensor) and result.numel() == 1 and result.is_floating_point():
        return float(result.detach())
    return result if isinstance(result, float) else None


def is_same(one: float, other: float) -> bool:
    """Bit for bit, as a row has it."""
    return one == other or (one != one and other != other)
