# SPDX-License-Identifier: Apache-2.0
"""Where those look for records who run the script alone: first where a record was put, then with
those that may have it, too; and which records that takes."""

import random

from courses.standby.chosen import Course
from trainmover.controller.standby.places import VAULTS_MAX, Places
from trainmover.controller.state import Job
from trainmover.controller.values import replace
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation


def _serve(course: Course, job: Job, rank: Rank, own: list[Rank]) -> None:
    first = job.recorded[rank].record_of
    first = rank if first is None else first
    others = [
        other
        for other, said in job.recorded.items()
        if said.record_of is None and course.role(other) == course.role(rank)
        and other // course.nproc != first // course.nproc
    ]  # fmt: skip
    if own[:1] != [first] or len(own) != min(len(others), 1) + 1 or not {*own[1:]} <= {*others}:
        raise Violation(f"{first} serves rank {rank}, or {others}; told is {own}")


def _is_where(
    job: Job, stored: m.Stored, here: list[MachineId], written: dict[Rank, m.Written]
) -> None:
    slot = Slot(stored.rank // job.spec.nproc)
    vaults = {one.vault: name for name, one in job.machines.items()}
    said = [vaults[vault] for vault in stored.vaults]
    kept = [name for name in job.keepers.get(slot, ()) if name in job.machines]
    ring = [*job.seats[slot + 1 :], *job.seats[: slot + 1]]
    behind = [name for name in ring if name in job.machines][:VAULTS_MAX]
    spare = [name for name in job.machines if name not in job.seats]
    spare.sort(key=lambda name: int(name[1:]))
    truth = [*dict.fromkeys([*kept, *behind, *spare[:VAULTS_MAX]])]
    if said != truth:
        raise Violation(f"records of {stored.rank} are with {truth}, told is {said}")
    file = f"/kept/{stored.rank}.record" if stored.rank in written else ""
    if stored.file != file or stored.compiled != file.replace("record", "compiled"):
        raise Violation(f"the record of {stored.rank} is in {file!r}: {stored}")


def _checkpoint(job: Job, written: dict[Rank, m.Written]) -> m.Checkpoint:
    compiled = {rank: m.Written(file=f"{rank}.compiled", bytes=1, digest="d") for rank in written}
    return m.Checkpoint(
        folder="/kept", run_id="chosen", step=Step(9), epoch=Epoch(1), argv=[], module=False,
        script="", machines=len(job.seats), nproc=job.spec.nproc, torch="2", trainmover="1",
        python="3", states={}, records=written, compiled=compiled, recorded=[],
    )  # fmt: skip


def play(chance: random.Random) -> None:
    """One slot of one job."""
    course = Course(chance)
    job = course.job
    here = [name for name in job.seats if name in job.machines]
    keepers = {
        Slot(slot): tuple(chance.sample([*job.machines, MachineId("m99")], 2))
        for slot in range(len(job.seats))
        if chance.random() < 0.8
    }
    job = replace(job, keepers=keepers)
    written = {
        rank: m.Written(file=f"{rank}.record", bytes=1, digest="d")
        for rank in job.recorded
        if chance.random() < 0.5
    }
    if chance.random() < 0.5:
        job = replace(job, checkpoint=_checkpoint(job, written))
    else:
        written = {}
    slot = Slot(chance.randrange(len(job.seats)))
    records = Places(job).of(slot)
    wanted, due = {*job.spec.ranks(slot)}, [*job.spec.ranks(slot)]
    while due:
        rank = due.pop()
        own = [stored.rank for stored in records.get(rank, [])]
        _serve(course, job, rank, own)
        for one in own:
            base = job.recorded[one].base
            if base is not None and base not in wanted:
                wanted.add(base)
                due.append(base)
    if [*records] != sorted(wanted):
        raise Violation(f"slot {slot} needs {wanted}, told is {[*records]}")
    for stored in (one for several in records.values() for one in several):
        _is_where(job, stored, here, written)
