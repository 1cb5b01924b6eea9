# SPDX-License-Identifier: Apache-2.0
"""What a step has given its caller.

The lines behind the step go on with it. If its rank is lost there, whoever takes it runs them, and
has to be given what they were given. A row tells that where the step reports by some name the
number that it returns, which its first calls show. All else goes to the buddy before the script
gets it: a dict, a tuple, a tensor, and the number of a step that reports another, or that was
called first when the standbys had their record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trainmover.errors import UserError
from trainmover.ids import Step
from trainmover.state import tensor_bytes
from trainmover.state.encode import decode, encode
from trainmover.torch_internals.trees import tree_map

BYTES_MAX = 64 * 1024
"""It goes with each step, and the script waits for it."""
STEPS_MAX = 64
"""So many steps without a fetch between them are remembered."""
LOSS = "loss"
"""What a number is called that was returned, and not reported by a name."""
_A_NUMBER = torch.empty((), device="meta")


@dataclass(slots=True)
class Given:
    """By one committed step.

    values  that it has reported
    result  packed; b"" if a row tells it, or if it cannot be sent
    small   states of small tracked objects at its gate, those that have changed since the fetch: if
            others follow before the next one; None: it is not known
    """

    step: Step
    values: Mapping[str, float]
    result: bytes = b""
    small: dict[str, bytes] | None = None


class Kinds:
    """What the step functions of a script give, as far as their first calls have shown. By their
    code, since a script may make its function anew for each of its passes.

    told  those for which a row tells it, if it is one number
    """

    def __init__(self) -> None:
        self.told: set[object] = set()
        self._of: dict[object, tuple[Any, set[str]]] = {}

    def note(
        self,
        code: object,
        result: Any,
        values: Mapping[str, float],
        *,
        kept: bool = False,
    ) -> None:
        """One call.

        values: that it has reported; without any the runtime reports the number
        kept: what it gave is, to be imitated in this process
        """
        same: set[str] = set()
        if (one := number_of(result)) is not None:
            reported = values or {LOSS: one}
            same = {name for name, value in reported.items() if is_same(value, one)}
        _, before = self._of.get(code, (None, same))
        self._of[code] = _kind_of(result) if kept else _A_NUMBER, same & before
        (self.told.add if same & before else self.told.discard)(code)

    def of(self, code: object) -> tuple[Any, set[str]]:
        """What the newest of these calls gave, a tensor without its data; and the names under which
        all of them have reported that. Of others the usual: a loss, of which nothing is known."""
        return self._of.get(code, (_A_NUMBER, set()))

    def are_told(self, code: object, result: Any, values: Mapping[str, float]) -> bool:
        """Whether a row with these values tells what this call has given, or it has given nothing.
        Once it does not by one of its names, it never does: another process goes by the first."""
        if result is None or code not in self.told or not _is_number(result):
            return result is None
        if (one := number_of(result)) is not None:
            for name in self._of[code][1]:
                if name in values and not is_same(values[name], one):
                    self.told.discard(code)
                    return False
        return True


def packed(result: Any) -> bytes:
    """b"" for what cannot be sent, or is too large."""
    fits = True

    def weigh(leaf: Any) -> Any:
        nonlocal fits
        if isinstance(leaf, Tensor):
            here = leaf.device.type == "cpu" and not leaf.requires_grad
            is_small = tensor_bytes.is_plain(leaf) and leaf.nbytes <= BYTES_MAX
            fits = fits and here and is_small
        return leaf

    if _is_number(result) and isinstance(result, Tensor):
        result = result.detach().cpu()
    tree_map(weigh, result)
    if not fits:
        return b""
    try:
        data = encode(result)
    except UserError:
        return b""
    return data if len(data) <= BYTES_MAX else b""


def unpacked(data: bytes) -> Any:
    """What was packed."""
    return decode(data)


def lately(given: list[Given], since: Step, *, before: Step | None = None) -> list[Given]:
    """Those of the steps from `since` on that are kept: the newest, and together not too large.

    before: not that of this step, nor of later ones, which were tried and did not commit
    """
    kept: list[Given] = []
    size = of_states = 0
    for one in reversed(given):
        if before is not None and one.step >= before:
            continue
        size += len(one.result)
        if one.step < since or len(kept) == STEPS_MAX or size > BYTES_MAX:
            break
        of_states += sum(map(len, (one.small or {}).values()))
        kept.append(one if of_states <= BYTES_MAX else replace(one, small=None))
    return kept[::-1]


def number_of(result: Any) -> float | None:
    """The one number that it is, as a row has it; None if it is none."""
    if isinstance(result, Tensor) and result.numel() == 1 and result.is_floating_point():
        return float(result.detach())
    return result if isinstance(result, float) else None


def _is_number(result: Any) -> bool:
    if isinstance(result, Tensor):
        return result.numel() == 1
    return isinstance(result, float)


def _kind_of(result: Any) -> Any:
    return torch.empty_like(result, device="meta") if isinstance(result, Tensor) else result


def is_same(one: float, other: float) -> bool:
    """Bit for bit, as a row has it."""
    return one == other or (one != one and other != other)
