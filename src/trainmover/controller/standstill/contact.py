# SPDX-License-Identifier: Apache-2.0
"""Machines that the controller has no contact with: their silence proves nothing here. Pure.

A link can break or fall silent, and a controller can die, while ranks train on. What the processes
of such a machine did since then lies in its agent's outbox, and an order to it has not arrived. So
nobody is judged by what such a machine did not say, and once it is back its deadlines start anew:
time that passes while nobody can decide counts against nobody. Whether a machine that stays away is
lost is decided elsewhere, by whether anybody reaches it (`server.machines.absence`).
"""

from collections.abc import Mapping

from trainmover.controller.events import ContactChanged
from trainmover.controller.standstill.stuck import Standstill
from trainmover.controller.state import Job
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Rank


def contact_changed(job: Job, event: ContactChanged) -> Job:
    """Record which machines are away and which are back."""
    back = [name for name in event.back if name in job.machines]
    away = (job.away - set(event.back)) | {name for name in event.away if name in job.machines}
    return replace(job, away=away, back_us={**job.back_us, **dict.fromkeys(back, event.at_us)})


def without_contact(job: Job) -> Job:
    """Return the job as a successor finds it: no machine is back yet."""
    return replace(job, away=frozenset(job.machines))


def waited_us(job: Job, machine: MachineId, since_us: int, at_us: int) -> int:
    """Return for how long the machine could have answered what is asked of it since `since_us`.

    0 while it is away.
    """
    if machine in job.away:
        return 0
    return at_us - max(since_us, job.back_us.get(machine, 0))


def stands_in_contact(job: Job, stands: Mapping[Rank, Standstill]) -> dict[Rank, Standstill]:
    """Return what ranks said on machines in contact; of others it may be out of date."""
    if not job.away:
        return dict(stands)
    nproc = job.spec.nproc
    return {rank: one for rank, one in stands.items() if job.seats[rank // nproc] not in job.away}
