# SPDX-License-Identifier: Apache-2.0
"""What one machine says is noted for it and its ranks, and nothing else is forgotten or made up.

Where a fact leads to no order and no other change begins, all tables of what is known stay as they
are, but for the entries of who has spoken. That holds for whatever table the job, its change or a
policy keeps by machine or rank.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from trainmover.controller.events import AgentSaid, WorkerSaid, WorkersSaid
from trainmover.controller.state import Job
from trainmover.ids import MachineId, Slot
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

ALL = m.Fingerprinted | m.Snapped | m.Recorded | m.StepsChanged | m.Wrote | m.Examined | m.Reached
"""The last of these that comes says something of all, or what one says of steps is true of all."""
WITHIN = ("hanging", "health", "anomalies", "change", "stragglers", "comparison")
"""Parts of a job that have tables too."""


class Frames:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        event, before, after = moment.event, moment.before, moment.after
        if not isinstance(event, AgentSaid | WorkerSaid | WorkersSaid) or moment.effects:
            return
        facts = event.facts if isinstance(event, WorkersSaid) else [event.fact]
        if any(isinstance(fact, ALL) for fact in facts) or not _goes_on(before, after):
            return
        slot = before.slot_of(event.machine)
        ranks = () if slot is None else before.spec.ranks(slot)
        said = {fact.rank for fact in facts if hasattr(fact, "rank")}
        its = {event.machine, *ranks, *said, *_slots_to_take(before, event.machine)}
        for name, old, new in _tables(before, after):
            for key in _changed(old, new):
                if not _is_of(key, its, event.machine) and not _is_over(name, old, key, before):
                    raise Violation(f"{event} has changed what {name} has of {key}")


def _slots_to_take(job: Job, machine: MachineId) -> list[Slot]:
    """Return the slot that a joiner, or a second one beside it, is bound to take."""
    change = job.change
    bound = (*change.joiners.items(), *change.hedges.items()) if change is not None else ()
    return [slot for slot, name in bound if name == machine]


def _goes_on(before: Job, after: Job) -> bool:
    """Nothing else has begun or ended."""
    old, new = before.change, after.change
    if before.phase is not after.phase or before.plan is not after.plan:
        return False
    if (old is None) is not (new is None):
        return False
    return old is None or new is None or (old.epoch, old.stage) == (new.epoch, new.stage)


def _tables(before: Job, after: Job) -> Iterator[tuple[str, Any, Any]]:
    """Those that are not the same objects, each with its name."""
    for name in vars(after):
        old, new = getattr(before, name), getattr(after, name)
        if old is new:
            continue
        if name in WITHIN and is_dataclass(new):
            for field in fields(new):
                yield field.name, getattr(old, field.name), getattr(new, field.name)
        else:
            yield name, old, new


def _changed(old: Any, new: Any) -> Iterator[Any]:
    """Keys with another value, or without one."""
    if old is new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in old.keys() | new.keys():
            if key not in old or key not in new or old[key] != new[key]:
                yield key
    elif isinstance(old, Set) and isinstance(new, Set):
        yield from set(old) ^ set(new)


def _is_of(key: Any, its: set[Any], machine: MachineId) -> bool:
    return key in its or (isinstance(key, tuple) and machine in key)


def _is_over(name: str, old: Any, key: Any, job: Job) -> bool:
    """What ranks said in an epoch that is over is dropped by whoever speaks next; so is what was
    known of machines that are gone."""
    if name == "stands":
        return key in old and old[key].fact.epoch != job.epoch
    return name == "excesses" and key[0] not in job.machines
