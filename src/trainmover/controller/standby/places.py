# SPDX-License-Identifier: Apache-2.0
"""Where records of first steps lie, for those who run the script alone. Pure.

A rank's record lies with the buddy that it was told, and with those that it had before: mostly
machines whose seats are behind its own. So a machine is told of a few vaults for each of its ranks,
and not of all that there are.
"""

import itertools
from collections.abc import Iterator

from trainmover.controller.change.seats import spare
from trainmover.controller.state import Job
from trainmover.ids import Rank, Slot
from trainmover.protocol.messages import Records, Stored

VAULTS_MAX = 8
"""Machines behind a slot, and machines without ranks, whose vaults are asked: so many of each."""


class Places:
    """Of a job as it is now; to be made once for any number of slots."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._spare = [machine.vault for machine in spare(job)[:VAULTS_MAX]]

    def of(self, slot: Slot) -> Records:
        """Rank -> records that serve it: its own or the one it refers to, then one of its role.

        For the ranks of `slot`, and for those that their records refer to.
        """
        records: Records = {}
        wanted = list(self._job.spec.ranks(slot))
        while wanted:
            rank = wanted.pop()
            serving = self._serving(rank)
            records[rank] = [self._stored(other) for other in serving]
            bases = (self._job.recorded[other].base for other in serving)
            wanted += [base for base in bases if base is not None and base not in records]
        return dict(sorted(records.items()))

    def _serving(self, rank: Rank) -> list[Rank]:
        """Whose record serves `rank`: two, kept for different machines, if there are two."""
        recorded = self._job.recorded
        said = recorded[rank]
        first = rank if said.record_of is None else said.record_of
        nproc = self._job.spec.nproc
        others = (
            other
            for other in map(Rank, range(self._job.spec.world_size))
            if (its := recorded[other]).record_of is None
            and (its.signature, its.trace) == (said.signature, said.trace)
            and other // nproc != first // nproc
        )
        return [first, *itertools.islice(others, 1)]

    def _stored(self, rank: Rank) -> Stored:
        slot = Slot(rank // self._job.spec.nproc)
        few = [*itertools.islice(self._behind(slot), VAULTS_MAX), *self._spare]
        vaults = list(dict.fromkeys([*self._buddy(slot), *few]))
        checkpoint = self._job.checkpoint
        if checkpoint is None:
            return Stored(rank=rank, vaults=vaults)
        record, compiled = checkpoint.records.get(rank), checkpoint.compiled.get(rank)
        return Stored(
            rank=rank,
            vaults=vaults,
            file=checkpoint.path(record) if record else "",
            compiled=checkpoint.path(compiled) if compiled else "",
        )

    def _buddy(self, slot: Slot) -> list[str]:
        machines = self._job.machines
        told = self._job.keepers.get(slot, ())
        return [machines[name].vault for name in told if name in machines]

    def _behind(self, slot: Slot) -> Iterator[str]:
        """Vaults of machines that live, beginning with the one behind `slot` in the ring."""
        job, slots = self._job, len(self._job.seats)
        ring = (job.seats[(slot + step) % slots] for step in range(1, slots + 1))
        return (job.machines[name].vault for name in ring if name in job.machines)
