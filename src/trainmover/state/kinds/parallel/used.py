# SPDX-License-Identifier: Apache-2.0
"""Which parameters a DistributedDataParallel has used since it has summed gradients last: see
`torch_internals/distributed/used.py`. Where updates take several steps, one step's marks decide
what the sum of another takes in. Each rank has its own, so they are put back by a retry, and go
with the rank's record. Behind a sum there are none.
"""

import weakref
from array import array
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainmover.state import encode
from trainmover.state.kinds.modules.modes import Wrappers
from trainmover.torch_internals.distributed import used

_Looking = tuple[weakref.ref[DistributedDataParallel], "memoryview[int]"]


class Used:
    """Of the wrappers of one module that look for unused parameters, as an object with the two
    state methods."""

    any: Sequence[object] = used.looking
    """Empty: no wrapper of any module does, and nobody need be asked."""

    def __init__(self, module: nn.Module) -> None:
        self._wrappers = Wrappers(list(module.parameters()))
        self._known: list[weakref.ref[DistributedDataParallel]] = []
        self._looking: list[_Looking] = []
        self._marks: list[bytes] = []
        self._encoded = encode.encode({})

    def encoded(self) -> bytes:
        """Its state in bytes; the same ones for as long as no mark is another."""
        if (marks := self._lie()) != self._marks:
            self._marks, self._encoded = marks, encode.encode(_state(marks))
        return self._encoded

    def state_dict(self) -> dict[str, Any]:
        """{} if nothing is marked; else of each wrapper its marks, a byte to a parameter."""
        return _state(self._lie())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Mark these, and no others; a process that lacks a wrapper leaves it."""
        wrappers = [one for reference, _ in self._found() if (one := reference()) is not None]
        given = state.get("used", [b""] * len(wrappers))
        for wrapper, marks in zip(wrappers, given, strict=False):
            used.set_used(wrapper, array("i", list(marks)).tobytes())

    def _found(self) -> list[_Looking]:
        if (known := self._wrappers.references()) is not self._known:
            live = [(reference, one) for reference in known if (one := reference()) is not None]
            self._known = known
            self._looking = [(each, used.used_by(one)) for each, one in live if used.looks(one)]
        return self._looking

    def _lie(self) -> list[bytes]:
        """As they lie there. Their memory is the wrapper's, as long as it lives."""
        return [view.tobytes() for reference, view in self._found() if reference() is not None]


def _state(marks: list[bytes]) -> dict[str, Any]:
    return {"used": [_narrow(one) for one in marks]} if any(map(any, marks)) else {}


def _narrow(marks: bytes) -> bytes:
    return bytes(map(bool, memoryview(marks).cast("i")))
