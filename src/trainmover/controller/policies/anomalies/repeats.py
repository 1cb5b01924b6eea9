# SPDX-License-Identifier: Apache-2.0
"""Incidents that begin on one machine more often than chance gives them to one. Pure.

What the script itself brings about (its errors, its memory) counts for no machine, wherever it
comes up: moved elsewhere it would come up there.
"""

from collections import Counter

from trainmover.controller.change.causes import Exit, exit_of
from trainmover.controller.change.incidents import lately
from trainmover.controller.policies.stragglers.excess import tail
from trainmover.controller.state import Incident, Job, Kind
from trainmover.ids import MachineId

LATELY_US = 3600 * 1_000_000
LEAST = 3
CHANCE = 1e-4
OF_SCRIPTS = {Exit.USER, Exit.MEMORY}


def repeating(job: Job, at_us: int) -> dict[MachineId, int]:
    """Machines that are here, and how many of the last hour's incidents have begun on each."""
    counted = [one for one in lately(job) if _counts(one, at_us)]
    if len(counted) < LEAST:
        return {}
    of = Counter(one.machine for one in counted if one.machine in job.machines)
    likely = 1 / max(len(job.machines), 2)
    return {
        machine: count
        for machine, count in of.items()
        if machine is not None and count >= LEAST and tail(count, len(counted), likely) < CHANCE
    }


def _counts(incident: Incident, at_us: int) -> bool:
    if incident.kind is not Kind.RECOVERY or incident.machine is None:
        return False
    in_time = at_us - min(incident.marks.values(), default=0) < LATELY_US
    return in_time and exit_of(incident.cause, *incident.stacks.values()).kind not in OF_SCRIPTS
