# SPDX-License-Identifier: Apache-2.0
"""What detectors may say of machines at any moment, rightly or not: they live beside the job."""

import random

from trainmover.controller.change.incidents import open_incident
from trainmover.controller.events import AnomalyFound, SlowFound, SlowMeasured, SlowSuspected
from trainmover.controller.state import Job
from trainmover.ids import MachineId, Step

FOUND = SlowSuspected | SlowFound | SlowMeasured | AnomalyFound
USUAL_MS = 100.0
LONGER = (1.0, 1.05, 1.3, 1.6, 2.0)
"""Times usual."""


def anything(job: Job, chance: random.Random, step: Step, at_us: int) -> FOUND:
    """Of a machine that has ranks. A move is measured once it is over."""
    machine, *others = chance.sample(job.seats, len(job.seats))
    moves = job.stragglers.moves
    if moves and open_incident(job) is None and chance.random() < 0.5:
        longer = chance.choice(LONGER)
        return SlowMeasured(
            at_us=at_us,
            epoch=job.epoch,
            incident=chance.choice(moves).incident,
            own_ms=USUAL_MS * longer,
            usual_ms=USUAL_MS,
            steps=8,
            busier=chance.choice((0.0, 0.5)),
        )
    if chance.random() < 0.3:
        return AnomalyFound(
            at_us=at_us,
            machine=machine,
            sign=chance.choice(("creeps", "falls")),
            text="it does",
            grave=chance.random() < 0.5,
        )
    if chance.random() < 0.3:
        return SlowSuspected(at_us=at_us, epoch=job.epoch, machine=machine, step=step)
    return _slow(job, chance, machine, others, step, at_us)


def _slow(
    job: Job,
    chance: random.Random,
    machine: MachineId,
    others: list[MachineId],
    step: Step,
    at_us: int,
) -> SlowFound:
    kind = chance.choice(("machine", "machine", "rank", "network"))
    slot = job.slot_of(machine)
    assert slot is not None
    everybody = chance.random() < 0.1
    return SlowFound(
        at_us=at_us,
        epoch=job.epoch,
        machine=None if everybody else machine,
        kind="everybody" if everybody else kind,
        ranks=job.spec.ranks(slot),
        step=step,
        steps=7,
        own_ms=USUAL_MS * chance.choice(LONGER),
        usual_ms=USUAL_MS,
        peer=others[0] if kind == "network" and others and not everybody else None,
    )
