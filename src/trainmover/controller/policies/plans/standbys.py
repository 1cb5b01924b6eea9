# SPDX-License-Identifier: Apache-2.0
"""Which standbys a plan may count on. Pure."""

from collections.abc import Collection

from trainmover.controller.change.seats import at_hand, other_torch
from trainmover.controller.state import Job, MachineState
from trainmover.ids import MachineId


def ready(job: Job, but_for: Collection[MachineId] = ()) -> list[MachineId]:
    """Those that can take ranks now."""
    return [
        machine.id
        for machine in at_hand(job)
        if machine.state is MachineState.WARM and machine.id not in but_for and not machine.suspect
    ]


def coming(job: Job, but_for: Collection[MachineId] = ()) -> list[MachineId]:
    """Those that are on their way to be ready: each comes to an end of that, or is lost."""
    return [
        machine.id
        for machine in at_hand(job)
        if machine.state not in (MachineState.WARM, MachineState.COLD)
        and machine.id not in but_for
        and not machine.suspect
        and not other_torch(job, machine)
    ]
