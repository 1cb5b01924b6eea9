# SPDX-License-Identifier: Apache-2.0
"""What standbys have proven, and the roles they proved it for, as JSON values. Pure."""

from typing import Any

from trainmover.controller.change.seats import spare
from trainmover.controller.compare.roles import kinds, roles
from trainmover.controller.standby.attest import predicted_ms
from trainmover.controller.state import Job, Machine
from trainmover.ids import Rank, Slot
from trainmover.protocol.messages import Recorded


def roles_json(job: Job) -> list[dict[str, Any]]:
    """Roles in their order: which ranks have them, and the records that are stored for them."""
    ranks_of: dict[int, list[Rank]] = {}
    for rank, role in roles(job).items():
        ranks_of.setdefault(role, []).append(rank)
    said = {role: [job.recorded[rank] for rank in ranks] for role, ranks in ranks_of.items()}
    return [
        {
            "role": role,
            "ranks": ranks,
            "trace": said[role][0].trace,
            "record_bytes": sum(fact.bytes for fact in said[role]),
            "record_bytes_full": sum(fact.bytes_full for fact in said[role] if fact.bytes),
        }
        for role, ranks in ranks_of.items()
    ]


def standbys_json(job: Job, now_us: int) -> list[dict[str, Any]]:
    """A row for every machine without ranks and every kind of slot; one before kinds are known."""
    by_kind = kinds(job)
    rows = []
    for machine in spare(job):
        if not job.seats and not machine.standby:
            continue
        if not by_kind:
            rows.append(_row(job, machine, None, [], now_us))
        for first, slots in by_kind.items():
            rows.append(_row(job, machine, first, slots, now_us))
    return rows


def _row(
    job: Job, machine: Machine, first: Slot | None, slots: list[Slot], now_us: int
) -> dict[str, Any]:
    attest = machine.attests.get(first) if first is not None else None
    fit = attest is not None and not attest.failed
    served = [] if first is None else [_served(job, rank) for rank in job.spec.ranks(first)]
    own = attest.failed if attest is not None else ""
    return {
        "machine": machine.id,
        "state": str(machine.state),
        "slots": slots,
        "ranks": [rank for slot in slots for rank in job.spec.ranks(slot)],
        "roles": [] if first is None else [roles(job)[rank] for rank in job.spec.ranks(first)],
        "holds": [] if machine.held not in slots else job.spec.ranks(Slot(machine.held or 0)),
        "trace_equal": None if attest is None else fit,
        "stale": attest is not None and attest.stale,
        "warmed_s": max(0, now_us - attest.at_us) / 1e6 if attest is not None and fit else None,
        "warm_ms": attest.warm_ms if attest is not None and fit else None,
        "second_run_ms": attest.run_ms if attest is not None and fit else None,
        "held_bytes": attest.held_bytes if attest is not None and fit else None,
        "device_bytes": attest.device_bytes if attest is not None and fit else None,
        "predicted_ms": _predicted_ms(job, machine, first),
        "predicted_else_ms": _predicted_ms(job, machine, first, other_held=True),
        "record_bytes": sum(fact.bytes for fact in served),
        "record_bytes_full": sum(fact.bytes_full for fact in served),
        "cordoned": machine.id in job.cordoned,
        "torch": machine.torch,
        "trainmover": machine.version,
        "fresh_processes": bool(machine.once),
        "note": own or machine.note,
    }


def _predicted_ms(
    job: Job, machine: Machine, first: Slot | None, *, other_held: bool = False
) -> float | None:
    """For people: tenths of milliseconds."""
    if first is None:
        return None
    value = predicted_ms(job, machine, first, other_held=other_held)
    return None if value is None else round(value, 1)


def _served(job: Job, rank: Rank) -> Recorded:
    """The record from which a shadow run as `rank` is served."""
    own = job.recorded[rank]
    return own if own.record_of is None else job.recorded.get(own.record_of, own)
