# SPDX-License-Identifier: Apache-2.0
"""No policy raises: `policies.guard` would switch it off, and nobody would see why."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Unbroken:
    """Look at the job after each decision."""

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        for policy, why in moment.after.broken_policies.items():
            raise Violation(f"the policy {policy} has raised {why}")
