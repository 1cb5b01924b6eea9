# SPDX-License-Identifier: Apache-2.0
"""Machines, or processes on them, are gone: what becomes of the places they had. Pure."""

from collections.abc import Sequence

from trainmover.controller.change.interruption import interrupt
from trainmover.controller.change.move import cancel_move
from trainmover.controller.change.seats import before_switch, drains, with_machine, without_machines
from trainmover.controller.effects import Decision, Effect, Fence
from trainmover.controller.events import Lost
from trainmover.controller.keep.checkpoints import write_anew
from trainmover.controller.keep.cuts import without_vaults
from trainmover.controller.policies.health.examine import keeps_out
from trainmover.controller.standby.flapping import losses_noted
from trainmover.controller.standstill.condemned import without_processes
from trainmover.controller.start import lost_early
from trainmover.controller.state import Cause, Job, MachineState, Phase
from trainmover.controller.values import replace
from trainmover.ids import MachineId

NAMED_MAX = 6


def losses_text(lost: Sequence[Lost]) -> str:
    """Return who was lost and why, each reason once.

    >>> def of(machine, why):
    ...     return Lost(machine=machine, why=why, heard_us=0)
    >>> losses_text([of("m1", "its process ended")])
    'm1 was lost: its process ended'
    >>> losses_text([of("m1", "silent"), of("m2", "silent"), of("m3", "its process ended")])
    'm1 and m2 were lost: silent; m3 was lost: its process ended'
    """
    by_why: dict[str, list[str]] = {}
    for one in lost:
        by_why.setdefault(one.why, []).append(one.machine)
    return "; ".join(
        f"{_named(names)} {'was' if len(names) == 1 else 'were'} lost: {why}"
        for why, names in by_why.items()
    )


def _named(names: list[str]) -> str:
    if len(names) > NAMED_MAX:
        return f"{len(names)} machines ({', '.join(names[:NAMED_MAX])} ...)"
    return in_words(names)


def in_words(names: list[str]) -> str:
    """ "m1, m2 and m3"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def give_up(job: Job, machine: MachineId, cause: Cause, at_us: int, heard_us: int) -> Decision:
    """Shut out a machine that answers and cannot be worked with."""
    if job.phase is Phase.GATHERING:
        return lost_before_begin(job, [machine], {machine: cause.text}, at_us)
    job = all_gone(job, [machine], at_us)
    job, effects = cannot_go_on(job, [machine], cause, at_us, heard_us)
    return job, (Fence(machine), *effects)


def lost_before_begin(
    job: Job, machines: Sequence[MachineId], why: dict[MachineId, str], at_us: int
) -> Decision:
    effects: list[Effect] = list(map(Fence, machines))
    counted = [machine for machine in machines if not keeps_out(job, machine)]
    job = all_gone(job, machines, at_us)
    for machine in counted:
        if job.phase is Phase.GATHERING:  # Too few may be left before the last of them.
            job, more = lost_early(job, machine, why[machine])
            effects += more
    return job, tuple(effects)


def all_gone(job: Job, machines: Sequence[MachineId], at_us: int) -> Job:
    gone = [job.machines[name] for name in machines]
    job = losses_noted(job, gone, at_us)
    job = without_vaults(job, {machine.vault for machine in gone})
    job = without_machines(without_processes(job, set(machines)), machines)
    slots = (slot for name in machines if (slot := job.slot_of(name)) is not None)
    # Ranks that were through with the script. It may return by the same name, and without them.
    done = [rank for slot in slots if not job.is_vacant(slot) for rank in job.spec.ranks(slot)]
    return replace(job, exited=job.exited.union(done)) if done else job


def cannot_go_on(
    job: Job,
    machines: Sequence[MachineId],
    cause: Cause,
    at_us: int,
    heard_us: int,
    *,
    lost: Sequence[Lost] = (),
) -> Decision:
    """Machines, or the workers on them, cannot go on in the places they had.

    lost  of these the machines that are gone as a whole
    """
    if job.saves_last:
        return write_anew(job)
    vacant = set(job.vacant())
    slots = {name: job.slot_of(name) for name in machines}
    needed = [name for name, at in slots.items() if at in vacant]
    joiners = set(job.change.joiners.values()) if job.change is not None else set()
    join = [name for name in machines if name in joiners]
    if join and not needed and before_switch(job.change):
        return cancel_move(job, f"the joiner failed ({cause.text})")
    kept = [] if drains(job.change) else [name for name in machines if _keeps(job, name)]
    if not needed and not join and not kept:
        return job, ()
    return interrupt(
        job,
        cause,
        machine=(needed or join or kept)[0],
        lost=lost,
        at_us=at_us,
        heard_us=heard_us,
    )


def _keeps(job: Job, machine: MachineId) -> bool:
    """Tell whether it is gone, and ranks wait for it before each step: a standby has the records of
    a job of one machine. They see it at once where its links end; where its host has lost power
    they would stand for ever."""
    if machine in job.machines or job.finished:  # No rank makes a step without one that is through.
        return False
    slots = (slot for slot, keepers in job.keepers.items() if keepers[0] == machine)
    return any(not job.is_vacant(slot) for slot in slots)


def process_gone(job: Job, machine: MachineId, cause: Cause, at_us: int, heard_us: int) -> Decision:
    """A process has ended, or its rank cannot go on in it, which is the same."""
    return cannot_go_on(processes_gone(job, machine), [machine], cause, at_us, heard_us)


def processes_gone(job: Job, machine: MachineId) -> Job:
    """Return the job without what the processes of the machine hold; its vault is still there."""
    return without_processes(_down(job, machine), {machine})


def _down(job: Job, machine: MachineId) -> Job:
    """Some process of the machine has ended: nothing that the others do is of use."""
    crashes = job.machines[machine].crashes + 1
    return with_machine(
        job,
        machine,
        state=MachineState.DOWN,
        workers={},
        said=frozenset(),
        held=None,
        crashes=crashes,
    )
