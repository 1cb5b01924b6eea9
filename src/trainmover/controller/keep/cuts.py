# SPDX-License-Identifier: Apache-2.0
"""Snapshots of all ranks, for whatever is lost with a machine; and the way back to them. Pure.

Some rank's state may have no replica on another machine, the script may do between its steps what
cannot be done again (collectives; changes of bulk state behind the fetch of a batch), and a joiner
may lack what nobody else holds. So every rank keeps a snapshot every so many steps, from when all
have made their first: in its own memory, and with its buddy's agent. The snapshots of one step are
a *cut*. It is complete when all ranks have said that theirs is held twice; until then the cut
before is kept. So there is always one that all ranks can go back to, whatever machine is lost
(`going_back`).
"""

import math
from collections.abc import Set

import msgspec

from trainmover.controller.change.seats import before_switch, goes_back
from trainmover.controller.effects import Decision, Effect, Send
from trainmover.controller.facts import Facts
from trainmover.controller.state import Cut, Job
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Rank
from trainmover.protocol.messages import BetweenSteps, CutComplete, KeepSnapshots, Snapped

FIRST_EVERY = 5
"""Steps to the first cut, which tells what one costs."""
SHARE = 0.01
"""Of the time of all steps, that snapshots may take."""


def tend_snapshots(job: Job) -> Decision:
    """While no change is under way: have them kept, from when all have made their first steps."""
    asked = job.spec.snapshot_every
    if job.snapshot_every or job.no_snapshots or asked == 0 or not job.all_recorded:
        return job, ()
    return _keep(job, asked or FIRST_EVERY, now=asked is None)


def between_steps(job: Job, fact: BetweenSteps) -> Job:
    """The script does there what cannot be done again: only a cut helps if a machine is lost."""
    if job.between:
        return job
    what = "makes collectives between its steps"
    if fact.changed:
        what = f"changes {fact.changed} between the fetch of a batch and its step"
    return replace(job, between=f"{what} ({fact.where or f'rank {fact.rank}'})")


def snapped(job: Job, fact: Snapped) -> Decision:
    """A rank's snapshot is safe. With the last rank's the cut is complete.

    A rank whose snapshot of the complete cut has got another vault, or one more, says so again.
    """
    if job.cut is not None and fact.step == job.cut.step:
        if not fact.refused:
            return replace(job, cut=_held_by(job.cut, fact)), ()
        if goes_back(job.change):
            return replace(job, cut=_without_process(job.cut, fact.rank)), ()
    if fact.epoch != job.epoch or not (job.change is None or before_switch(job.change)):
        return job, ()
    effects: tuple[Effect, ...] = ()
    if fact.refused:  # Its process has it, so this cut can be complete; no other follows.
        job, effects = _keep(job, 0)
        job = replace(job, no_snapshots=f"of rank {fact.rank}: {fact.refused}")
        fact = msgspec.structs.replace(fact, vault="", refused="")
    newest = next(iter(job.snapped.values()), fact)  # All are of one step.
    if fact.step < newest.step:  # Of a cut that is void, since one rank could not take its part.
        return job, effects
    before = job.snapped if newest.step == fact.step else Facts()
    job = replace(job, snapped=before.having(fact.rank, fact))
    job, more = _complete(job) if len(job.snapped) == job.spec.world_size else (job, ())
    return job, effects + more


def _held_by(cut: Cut, fact: Snapped) -> Cut:
    """Another vault has the rank's snapshot. The one that had a second copy may be it: that is one
    copy then."""
    further = {**cut.further, fact.rank: fact.further or cut.further.get(fact.rank, "")}
    if further[fact.rank] in ("", fact.vault):
        del further[fact.rank]
    return replace(cut, vaults={**cut.vaults, fact.rank: fact.vault}, further=further)


def _without_process(cut: Cut, rank: Rank) -> Cut:
    """No vault takes what the process has, and it is not waited for."""
    return replace(cut, workers={r: its for r, its in cut.workers.items() if r != rank})


def _complete(job: Job) -> Decision:
    said = job.snapped
    step = next(iter(said.values())).step
    cut = Cut(
        step=step,
        vaults={rank: fact.vault for rank, fact in said.items()},
        workers={rank: address for rank in said if (address := _process_of(job, rank))},
        bytes=sum(fact.bytes for fact in said.values()),
        cost_us=max(fact.cost_us for fact in said.values()),
        further={rank: fact.further for rank, fact in said.items() if fact.further},
    )
    job = replace(job, cut=cut, snapped=Facts())
    orders: tuple[Effect, ...] = tuple(
        Send(machine, CutComplete(step=step)) for machine in sorted(job.machines)
    )
    every = interval(cut.cost_us, max(fact.step_us for fact in said.values()))
    to_be_tuned = job.snapshot_every == FIRST_EVERY and job.spec.snapshot_every is None
    if to_be_tuned and every != job.snapshot_every:
        job, more = _keep(job, every)
        return job, orders + more
    return job, orders


def interval(cost_us: int, step_us: int) -> int:
    """Steps between cuts that cost `cost_us` each, so that they take their share and no more.

    >>> interval(2_000, 100_000), interval(0, 100_000), interval(500, 0)
    (2, 1, 5)
    """
    if step_us <= 0:
        return FIRST_EVERY
    return max(1, math.ceil(cost_us / (SHARE * step_us)))


def _keep(job: Job, every: int, *, now: bool = False) -> Decision:
    """now: one at the next gate, since the job depends on it already."""
    seated = [machine for machine in job.seats if machine in job.machines]
    orders = tuple(Send(machine, KeepSnapshots(every=every, now=now)) for machine in seated)
    return replace(job, snapshot_every=every), orders


def cut_at_hand(job: Job) -> Cut | None:
    """The newest complete cut, if every rank's snapshot is still somewhere; without those places
    that are gone."""
    if job.cut is None:
        return None
    cut = _where_it_is(job, job.cut)
    return cut if _ranks_of(cut) == set(job.cut.vaults) else None


def lost_of(job: Job) -> Rank | None:
    """A rank whose snapshot of the newest complete cut is nowhere any more; None: there is none."""
    if job.cut is None:
        return None
    cut = _where_it_is(job, job.cut)
    return min(job.cut.vaults.keys() - _ranks_of(cut), default=None)


def only_in_processes(job: Job, machine: MachineId) -> list[Rank]:
    """Ranks whose snapshot of the newest complete cut is nowhere but in processes of this machine.
    All machines ask it of themselves where all go back: it looks at no other."""
    cut, slot = job.cut, job.slot_of(machine)
    if cut is None or slot is None:
        return []
    here = job.machines[machine].workers.values()
    return [
        rank
        for rank in job.spec.ranks(slot)
        if cut.workers.get(rank) in here and not (cut.vaults.get(rank) or cut.further.get(rank))
    ]


def _ranks_of(cut: Cut) -> set[Rank]:
    return {*cut.vaults, *cut.further, *cut.workers}


def without_vaults(job: Job, gone: Set[str]) -> Job:
    """Nothing of the cut is in these vaults any more. A machine that was given up and comes back
    has the same one, and it is empty."""
    cut = job.cut
    if cut is None or gone.isdisjoint({*cut.vaults.values(), *cut.further.values()}):
        return job
    vaults = {rank: "" if its in gone else its for rank, its in cut.vaults.items()}
    further = {rank: its for rank, its in cut.further.items() if its not in gone}
    return replace(job, cut=replace(cut, vaults=vaults, further=further))


def _where_it_is(job: Job, cut: Cut) -> Cut:
    machines = job.machines.values()
    alive = {machine.vault for machine in machines}
    processes = {address for machine in machines for address in machine.workers.values()}
    return replace(
        cut,
        vaults={rank: vault for rank, vault in cut.vaults.items() if vault in alive},
        further={rank: vault for rank, vault in cut.further.items() if vault in alive},
        workers={rank: worker for rank, worker in cut.workers.items() if worker in processes},
    )


def _process_of(job: Job, rank: Rank) -> str:
    """Address of the process that holds `rank`; "" if it is gone by now."""
    slot, local_rank = divmod(rank, job.spec.nproc)
    machine = job.machines.get(job.seats[slot])
    return machine.workers.get(local_rank, "") if machine is not None else ""
