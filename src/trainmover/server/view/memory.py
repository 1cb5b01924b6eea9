# SPDX-License-Identifier: Apache-2.0
"""What trainmover and training hold in host memory, rank by rank and machine by machine. Pure."""

from typing import Any

from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.protocol.messages import Weighed
from trainmover.server.view.progress import Progress


def memory_json(job: Job, progress: Progress) -> dict[str, Any]:
    """ranks: bytes by kind, as each rank last said; machines: what each keeps for others."""
    return {
        "ranks": [_rank(job, weighed) for _, weighed in sorted(progress.weighed.items())],
        "machines": [_machine(machine, progress) for machine in sorted(job.machines)],
    }


def _rank(job: Job, weighed: Weighed) -> dict[str, Any]:
    slot = weighed.rank // job.spec.nproc
    return {
        "rank": weighed.rank,
        "machine": job.seats[slot] if slot < len(job.seats) else None,
        "kinds": weighed.kinds,
        "rss": weighed.rss,
        "peak": weighed.peak,
    }


def _machine(machine: MachineId, progress: Progress) -> dict[str, Any]:
    beat = progress.vaults.get(machine)
    return {
        "machine": machine,
        "vault": 0 if beat is None else beat.vault_bytes,
        "vault_max": 0 if beat is None else beat.vault_max,
    }
