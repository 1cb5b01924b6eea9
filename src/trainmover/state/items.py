# SPDX-License-Identifier: Apache-2.0
"""One piece of what a rank keeps, and what the table says is done with it."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from trainmover.state.moments import TABLE, Do, Moment


@runtime_checkable
class HasState(Protocol):
    """What can be tracked: torch's own convention."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


@runtime_checkable
class Encodes(HasState, Protocol):
    """A kind that keeps its state in bytes: the same ones while it is the same."""

    def encoded(self) -> bytes: ...


@dataclass(frozen=True, eq=False)
class Item:
    """What lies beside a tracked object.

    path   "model.gradients"
    owner  name of the object
    kind   row of the table
    value  how it is taken and put
    large  the same as bulk state, for a kind that may be too large for a record
    """

    path: str
    owner: str
    kind: str
    value: HasState
    large: HasState | None = None

    def does(self, moment: Moment, do: Do) -> bool:
        """Whether that is done with it then."""
        return TABLE[self.kind][moment].do is do
