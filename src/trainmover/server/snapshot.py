"""The job as one JSON value, for the API. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from trainmover.controller.state import Change, Incident, Job, Machine
from trainmover.ids import MachineId, Rank
from trainmover.server.progress import Progress, RankProgress
from trainmover.server.standings import roles_json, standbys_json


def snapshot(
    job: Job, progress: Progress, heard_us: Mapping[MachineId, int], now_us: int
) -> dict[str, Any]:
    """Everything `trainmover status` shows.

    heard_us  machine -> when its last byte came
    """
    machines = sorted(job.machines.values(), key=lambda machine: machine.place)
    return {
        "run": job.spec.run_id,
        "phase": str(job.phase),
        "epoch": job.epoch,
        "step": progress.step,
        "loss": progress.loss,
        "step_ms": progress.step_ms,
        "world_size": job.spec.world_size,
        "machines": [
            _machine(job, machine, progress, heard_us.get(machine.id, now_us), now_us)
            for machine in machines
        ],
        "standbys": standbys_json(job, now_us),
        "roles": roles_json(job),
        "change": _change(job.change),
        "incidents": [incident_json(incident) for incident in job.incidents],
        "code": job.code,
        "ended_because": job.ended_because,
    }


def incident_json(incident: Incident) -> dict[str, Any]:
    """An incident with what is derived from its fields."""
    value: dict[str, Any] = msgspec.to_builtins(incident, str_keys=True)
    for given, certificate in zip(value["certificates"], incident.certificates, strict=True):
        given["equal"] = certificate.equal
    return value | {"phases_ms": incident.phases_ms}


def _machine(
    job: Job, machine: Machine, progress: Progress, heard_us: int, now_us: int
) -> dict[str, Any]:
    slot = job.slot_of(machine.id)
    ranks: list[Rank] = [] if slot is None else job.spec.ranks(slot)
    known: list[RankProgress] = [progress.ranks[r] for r in ranks if r in progress.ranks]
    speeds = [ms for rank in known if (ms := rank.step_ms) is not None]
    return {
        "id": machine.id,
        "state": str(machine.state),
        "ranks": ranks,
        "step": min((rank.step for rank in known), default=None),
        "step_ms": max(speeds, default=None),
        "last_seen_s": max(0, now_us - heard_us) / 1e6,
        "host": machine.host,
        "note": machine.note,
    }


def _change(change: Change | None) -> dict[str, Any] | None:
    if change is None:
        return None
    return {
        "kind": str(change.kind),
        "stage": str(change.stage),
        "epoch": change.epoch,
        "incident": change.incident,
        "joiners": {str(slot): machine for slot, machine in change.joiners.items()},
        "leavers": {str(slot): machine for slot, machine in change.leavers.items()},
        "missing": sorted(change.missing),
    }
