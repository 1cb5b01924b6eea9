# SPDX-License-Identifier: Apache-2.0
"""What a checker is."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Checker(Protocol):
    """Of one world."""

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        """Kinds of happenings, and what to call with one; that raises a Violation."""
        ...
