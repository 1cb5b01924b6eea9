# SPDX-License-Identifier: Apache-2.0
"""The job as one JSON value, for the API. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from trainmover.controller.change.causes import exit_of
from trainmover.controller.change.options import way_of
from trainmover.controller.keep.cuts import cut_at_hand
from trainmover.controller.standby.flapping import quarantined
from trainmover.controller.state import Change, Incident, Job, Kind, Machine
from trainmover.ids import MachineId, Rank, Slot
from trainmover.protocol.deadlines import deadlines_json
from trainmover.protocol.messages import Position
from trainmover.server.length import length
from trainmover.server.view.divergences import divergences_json, replicas_json
from trainmover.server.view.memory import memory_json
from trainmover.server.view.phases import phases_before, phases_of_pause, sum_text
from trainmover.server.view.plans import plan_json
from trainmover.server.view.progress import Progress
from trainmover.server.view.redundancy import redundancy_json
from trainmover.server.view.slowness import anomalies_json, stragglers_json
from trainmover.server.view.standings import roles_json, standbys_json
from trainmover.server.view.watching import watch_json


def snapshot(
    job: Job,
    progress: Progress,
    heard_us: Mapping[MachineId, int],
    now_us: int,
    *,
    away: Collection[MachineId] = (),
    waiting: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Everything `trainmover status` shows.

    heard_us  machine -> when its last byte came
    away      machines of which nothing is heard
    waiting   what the job waits for: see `view.waiting`
    """
    machines = sorted(job.machines.values(), key=lambda machine: machine.place)
    slots = {name: Slot(slot) for slot, name in enumerate(job.seats)}
    away = frozenset(away)
    return {
        "run": job.spec.run_id,
        "phase": str(job.phase),
        "epoch": job.epoch,
        "step": progress.step,
        "length": length(job),
        "loss": progress.loss,
        "step_ms": progress.step_ms,
        "world_size": job.spec.world_size,
        "asked": {"machines": job.spec.machines, "standbys": job.spec.standbys},
        "machines": [
            _machine(
                job,
                machine,
                slots.get(machine.id),
                progress,
                heard_us.get(machine.id, now_us),
                now_us,
            )
            | {"away": machine.id in away}
            for machine in machines
        ],
        "deadlines": deadlines_json(job.spec.deadlines, job.spec.patience_s),
        "waiting": [*waiting],
        "redundancy": redundancy_json(job),
        "standbys": standbys_json(job, now_us),
        "roles": roles_json(job),
        "replicas": replicas_json(job),
        "divergences": divergences_json(job),
        "snapshots": _snapshots(job),
        "checkpoint": _checkpoint(job),
        "memory": memory_json(job, progress),
        "watch": watch_json(job, progress, now_us),
        "quarantined": quarantined(job, now_us),
        "stragglers": stragglers_json(job),
        "anomalies": anomalies_json(job),
        "plan": plan_json(job, now_us),
        "cordoned": {name: _cordoned(job, name, now_us) for name in job.cordoned},
        "change": _change(job, progress, now_us),
        "controller": {
            "restarts": job.takeovers,
            "since_s": (now_us - job.taken_over_us) / 1e6 if job.takeovers else None,
        },
        "unequal": job.unequal,
        "incidents": [incident_json(incident) for incident in job.incidents],
        "code": job.code,
        "ended_because": job.ended_because,
        "trouble": str(exit_of(job.ended_because).kind) if job.code else "",
    }


def incident_json(incident: Incident) -> dict[str, Any]:
    """An incident with what is derived from its fields."""
    value: dict[str, Any] = msgspec.to_builtins(incident, str_keys=True, enc_hook=list)
    for given, certificate in zip(value["certificates"], incident.certificates, strict=True):
        given["equal"] = certificate.equal
    votes = [_vote(position) for _, position in sorted(incident.positions.items())]
    read = exit_of(incident.cause, *incident.stacks.values())
    unequal = f"not proved equal: {incident.unequal}" if incident.unequal else ""
    return value | {
        "note": "; ".join(filter(None, (incident.note, unequal))),
        "phases_ms": incident.phases_ms,
        "phases_before": list(phases_before(incident)),
        "adds_up": sum_text(phases_of_pause(incident), incident.downtime_ms),
        "positions": votes,
        "way": way_of(incident),
        "trouble": str(read.kind) if incident.kind is Kind.RECOVERY else "",
        "read_from": read.sentence if incident.kind is Kind.RECOVERY else "",
    }


def _vote(position: Position) -> dict[str, Any]:
    return {
        "rank": position.rank,
        "committed": position.committed,
        "gate": position.gate,
        "finished": position.finished,
    }


def _machine(
    job: Job,
    machine: Machine,
    slot: Slot | None,
    progress: Progress,
    heard_us: int,
    now_us: int,
) -> dict[str, Any]:
    ranks: list[Rank] = [] if slot is None else job.spec.ranks(slot)
    step, step_ms = progress.of(ranks)
    return {
        "id": machine.id,
        "state": str(machine.state),
        "ranks": ranks,
        "step": step,
        "step_ms": step_ms,
        "last_seen_s": max(0, now_us - heard_us) / 1e6,
        "host": machine.host,
        "rack": machine.rack,
        "cordoned": _cordoned(job, machine.id, now_us),
        "note": machine.note,
        "health": _health(job, machine.id),
    }


def _health(job: Job, machine: MachineId) -> dict[str, Any] | None:
    """None: it was not examined, or is not judged yet."""
    one = job.health.of.get(machine)
    if one is None or not one.judged:
        return None
    return {"fit": not one.failed, "failed": one.failed, "figures": one.figures}


def _cordoned(job: Job, machine: MachineId, now_us: int) -> dict[str, Any] | None:
    cordon = job.cordoned.get(machine)
    if cordon is None:
        return None
    return {"reason": cordon.reason, "since_s": max(0, now_us - cordon.at_us) / 1e6}


def _snapshots(job: Job) -> dict[str, Any]:
    """every: steps from one to the next, 0: none are taken; bytes: of all ranks, in host memory of
    their own and of another machine each."""
    cut = job.cut
    return {
        "every": job.snapshot_every,
        "step": None if cut is None else cut.step,
        "bytes": 0 if cut is None else cut.bytes,
        "cost_ms": None if cut is None else cut.cost_us / 1000.0,
        "at_hand": cut_at_hand(job) is not None,
        "why_none": job.no_snapshots,
    }


def _checkpoint(job: Job) -> dict[str, Any] | None:
    """The newest; step None: there is none yet. None: none are written."""
    newest, spec = job.checkpoint, job.spec
    if not spec.checkpoint:
        return None
    return {
        "folder": spec.checkpoint,
        "every": spec.checkpoint_every,
        "step": None if newest is None else newest.step,
        "bytes": 0 if newest is None else newest.bytes,
        "writing": None if job.writing is None else job.writing.step,
    }


def _change(job: Job, progress: Progress, now_us: int) -> dict[str, Any] | None:
    change = job.change
    if change is None:
        return None
    taken = progress.taken(change.epoch)
    return {
        "kind": str(change.kind),
        "stage": str(change.stage),
        "epoch": change.epoch,
        "incident": change.incident,
        "joiners": {str(slot): machine for slot, machine in change.joiners.items()},
        "leavers": {str(slot): machine for slot, machine in change.leavers.items()},
        "missing": sorted(change.missing),
        "waits": _waits(job, change, now_us),
        "state_bytes": taken and {"here": taken[0], "whole": taken[1]},
    }


def _waits(job: Job, change: Change, now_us: int) -> dict[str, Any] | None:
    """For machines, which would take these ranks; then the job ends."""
    if not change.missing:
        return None
    ranks = [rank for slot in sorted(change.missing) for rank in job.spec.ranks(slot)]
    left_s = max(0, change.until_us - now_us) / 1e6
    return {"machines": len(change.missing), "ranks": ranks, "left_s": left_s}
