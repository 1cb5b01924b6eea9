# SPDX-License-Identifier: Apache-2.0
"""Machines that are cordoned: they take no ranks from others until they are uncordoned. Pure.

Nothing else changes for them. One that has ranks keeps them, and may have its own again after its
workers crashed; a standby stays as warm as it is, and does nothing more for it. A change that has
chosen the machine before goes on.
"""

from trainmover.controller.change.move import unknown_machine
from trainmover.controller.change.seats import cordoned_by_people, without_cordon
from trainmover.controller.effects import Answer, Decision
from trainmover.controller.events import CordonRequested, UncordonRequested
from trainmover.controller.state import Job
from trainmover.ids import MachineId


def cordon(job: Job, event: CordonRequested) -> Decision:
    """Asked for again: the reason is the newer one."""
    machine = MachineId(event.machine)
    if machine not in job.machines and machine not in job.cordoned:
        return job, (Answer(event.request, ok=False, text=unknown_machine(job, machine)),)
    answer = Answer(event.request, ok=True, text=_done(job, machine))
    return cordoned_by_people(job, machine, event.reason, event.at_us), (answer,)


def _done(job: Job, machine: MachineId) -> str:
    if job.change is not None and machine in job.change.joiners.values():
        return f"{machine} is cordoned; the ranks that it is taking now it takes."
    if machine in job.seats:
        return f"{machine} is cordoned; the ranks that it has it keeps."
    return f"{machine} is cordoned: it takes no ranks."


def uncordon(job: Job, event: UncordonRequested) -> Decision:
    """It may be chosen again, also by a change that waits for a machine."""
    machine = MachineId(event.machine)
    if machine not in job.cordoned:
        text = unknown_machine(job, machine)
        if machine in job.machines:
            text = f"{machine} is not cordoned.\nNothing was done.\nThe job goes on."
        return job, (Answer(event.request, ok=False, text=text),)
    text = f"{machine} is not cordoned any more: it may take ranks."
    return without_cordon(job, machine), (Answer(event.request, ok=True, text=text),)
