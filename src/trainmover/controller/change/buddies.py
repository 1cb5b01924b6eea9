# SPDX-License-Identifier: Apache-2.0
"""Keepers of the records and snapshots of a machine's ranks: its buddy, another machine. Pure.

Machines stand in a ring, and each has the next one keep its own. Those of one failure domain (a
rack, or else a host) may be lost together, so they stand in the ring by turns: the first of each
domain, then the second of each, in the same order. Where one domain is larger than the others
together, the rest of it look further round the ring for one elsewhere, so that some machine keeps
for several.
"""

from trainmover.controller.state import Job
from trainmover.controller.values import kept_for, replace
from trainmover.ids import MachineId, Rank, Slot

GONE = MachineId("")
"""A keeper of before whose vault is gone, though a machine of its name may be there again."""


def keepers(job: Job, seats: tuple[MachineId, ...]) -> dict[Slot, MachineId]:
    """Slot -> the machine that keeps for it. Slots whose machine is gone have none.

    A job of one machine asks a standby, and only if there is none its own agent: then a lost
    machine is lost for good, which `verdict` will say.
    """
    alive = [machine for machine in seats if machine in job.machines]
    ring = _by_turns(job, alive if len(alive) > 1 else [*alive, *_others(job, seats)])
    keeper = _keepers_in(job, ring)
    return {Slot(slot): keeper[name] for slot, name in enumerate(seats) if name in keeper}


def vaults_of(job: Job, keeper: dict[Slot, MachineId]) -> dict[Rank, str]:
    """Rank -> vault that keeps its record."""
    return {
        rank: job.machines[name].vault
        for slot, name in keeper.items()
        for rank in job.spec.ranks(slot)
    }


def told_buddies(job: Job) -> dict[Rank, str]:
    """Rank -> vault that keeps its record now, as the rank was told; none where that is gone."""
    first = {slot: names[0] for slot, names in job.keepers.items()}
    return vaults_of(job, {slot: name for slot, name in first.items() if name in job.machines})


def further_keepers(job: Job, seats: tuple[MachineId, ...]) -> dict[Slot, MachineId]:
    """Slot -> the machine that keeps one more copy of its snapshots, if that is asked for: neither
    itself nor its keeper, and in another domain than both if there is one. {} if none is."""
    if job.spec.snapshot_copies < 2:
        return {}
    keeper = keepers(job, seats)
    ring = _by_turns(job, [machine for machine in seats if machine in job.machines])
    further = {slot: _further(job, ring, seats[slot], name) for slot, name in keeper.items()}
    return {slot: name for slot, name in further.items() if name is not None}


def _further(
    job: Job, ring: list[MachineId], machine: MachineId, keeper: MachineId
) -> MachineId | None:
    place = ring.index(machine)
    others = [name for name in (*ring[place + 1 :], *ring[:place]) if name != keeper]
    own, its = job.machines[machine].domain, job.machines[keeper].domain

    def shares(name: MachineId) -> tuple[bool, bool]:
        domain = job.machines[name].domain
        return domain == own, domain == its

    return min(others, key=shares, default=None)


def with_keepers(job: Job, keeper: dict[Slot, MachineId], further: dict[Slot, MachineId]) -> Job:
    """The ranks are told of these. What one that is lost had put away is looked for there."""
    both: dict[Slot, tuple[MachineId, ...]] = {
        slot: (name, further[slot]) if slot in further else (name,) for slot, name in keeper.items()
    }
    older = job.keepers_before
    before = {slot: (*older.get(slot, ()), *names) for slot, names in job.keepers.items()}
    before = {**older, **before}
    return replace(job, keepers=both, keepers_before=before)


def without_keeper(job: Job, machine: MachineId) -> Job:
    """Return the job with nothing kept by this machine: it joins, and its vault is empty."""
    tables = (job.keepers, job.keepers_before)
    if not any(machine in names for table in tables for names in table.values()):
        return job
    kept = {
        slot: tuple(name for name in names if name != machine)
        for slot, names in job.keepers.items()
        if names[0] != machine  # A further keeper has snapshots, and no records.
    }
    before = {
        slot: tuple(GONE if name == machine else name for name in names)
        for slot, names in job.keepers_before.items()
    }
    return replace(job, keepers=kept, keepers_before=before)


@kept_for("keepers", "keepers_before", "seats")
def holding(job: Job) -> frozenset[MachineId]:
    """Return the machines that may hold records of the epoch in force: those with ranks, and those
    whose vaults ranks were told to use. Some may be gone."""
    return frozenset(job.seats).union(*job.keepers_before.values(), *job.keepers.values())


def _by_turns(job: Job, machines: list[MachineId]) -> list[MachineId]:
    in_domain: dict[str, list[MachineId]] = {}
    for name in machines:
        in_domain.setdefault(job.machines[name].domain, []).append(name)
    turns = {
        name: (turn, domain)
        for domain, here in enumerate(in_domain.values())
        for turn, name in enumerate(here)
    }
    return sorted(machines, key=turns.__getitem__)


def _keepers_in(job: Job, ring: list[MachineId]) -> dict[MachineId, MachineId]:
    domains = [job.machines[name].domain for name in ring]
    if len(set(domains)) == 1:
        return {name: ring[(place + 1) % len(ring)] for place, name in enumerate(ring)}
    keeper: dict[MachineId, MachineId] = {}
    for place, name in enumerate(ring):
        behind = (at % len(ring) for at in range(place + 1, place + len(ring)))
        keeper[name] = ring[next(at for at in behind if domains[at] != domains[place])]
    return keeper


def _others(job: Job, seats: tuple[MachineId, ...]) -> list[MachineId]:
    """Return the standby to ask, elsewhere if there is one."""
    taken = set(seats)
    here = {job.machines[name].domain for name in taken if name in job.machines}
    others = [machine for machine in job.machines.values() if machine.id not in taken]
    best = min(
        others, key=lambda m: (m.id in job.cordoned, m.domain in here, m.place), default=None
    )
    return [] if best is None else [best.id]
