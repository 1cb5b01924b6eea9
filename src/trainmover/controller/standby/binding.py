# SPDX-License-Identifier: Apache-2.0
"""Joiners are bound as soon as their processes are up. Pure.

Whoever begins a change only says who joins; `decide` binds them while it settles.
"""

from trainmover.controller.change.seats import in_new_run, with_machine
from trainmover.controller.effects import Decision, Effect, Send
from trainmover.controller.keep.cuts import only_in_processes
from trainmover.controller.standby.attest import known_ms
from trainmover.controller.standby.places import Places
from trainmover.controller.start import start_workers
from trainmover.controller.state import Change, Job, Machine, MachineState
from trainmover.ids import MachineId, Slot
from trainmover.protocol.messages import Bind


def bind_ready(job: Job, only: MachineId | None = None) -> Decision:
    """Bind the joiners whose processes are up; start fresh processes for one that crashed.

    only: no other machine can have become ready
    """
    change = job.change
    assert change is not None
    effects: list[Effect] = []
    places: Places | None = None
    for slot, name in _to_be_bound(job, change, only):
        machine = job.machines[name]
        if machine.state is MachineState.DOWN:
            if only_in_processes(job, name):
                continue  # They are ended once a vault has it.
            job, order = start_workers(job, name)
            effects += order
        else:
            if _needs_fresh_processes(machine, slot):
                job, order = start_workers(job, name)
                effects += order
                continue
            begin = with_machine if _makes_run_of(machine) == slot else in_new_run
            job = begin(job, name, state=MachineState.BOUND, said=frozenset(), work=None, held=None)
            run = job.machines[name].run
            places = places or Places(job)
            order_ = Bind(
                epoch=change.epoch,
                slot=slot,
                records=places.of(slot),
                run=run,
                known_ms=known_ms(machine),
            )
            effects.append(Send(name, order_))
    return job, tuple(effects)


_CAN_BE_BOUND = (MachineState.WARM, MachineState.HOLDING, MachineState.IDLE)


def _to_be_bound(job: Job, change: Change, only: MachineId | None) -> list[tuple[Slot, MachineId]]:
    states = {*_CAN_BE_BOUND, MachineState.DOWN}
    one = None if only is None else job.machines.get(only)
    if one is not None and one.state not in states:
        return []
    joiners = (*change.joiners.items(), *change.hedges.items())
    return sorted((slot, name) for slot, name in joiners if job.machines[name].state in states)


def _needs_fresh_processes(machine: Machine, slot: Slot) -> bool:
    """Whether the only run that its processes are good for was made as another slot."""
    idle = machine.state is MachineState.IDLE
    return bool(machine.once) and not idle and _makes_run_of(machine) != slot


def _makes_run_of(machine: Machine) -> Slot | None:
    """The slot whose run it holds, or begins in order to hold it."""
    return machine.work if machine.state is MachineState.HOLDING else machine.held
