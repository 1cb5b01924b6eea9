"""Which standbys a plan may count on, and names that it is given. Pure."""

from collections import Counter
from collections.abc import Collection, Sequence

from trainmover.controller.change.seats import at_hand, other_torch
from trainmover.controller.state import Job, MachineState
from trainmover.ids import MachineId


def why_not_each_once(names: Sequence[str]) -> str:
    """Three lines for a name that comes twice; "" if none does."""
    twice = next((name for name, times in Counter(names).items() if times > 1), "")
    return twice and f"{twice} is named twice.\nNothing was done.\nName each machine once."


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
