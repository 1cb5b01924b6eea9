# SPDX-License-Identifier: Apache-2.0
"""What an engine reads of a job, and what people read of the engine. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainmover.controller.events import EngineNoticed, Event, MachinesDenied, MachinesGranted
from trainmover.controller.policies.capacity.known import Need, Want
from trainmover.controller.state import Job, Phase
from trainmover.ids import MachineId

NAMED_MAX = 6


@dataclass(frozen=True)
class Queued:
    """Place of a machine in its scheduler's queue, the first is 1; 0: not known. why: in the
    scheduler's words."""

    place: int
    why: str = ""


def wants_json(job: Job, version: int, now_us: int, *, over: bool) -> dict[str, Any]:
    """Return all that an engine has to know. It may be read at any time, and again."""
    grants = job.capacity.grants
    return {
        "version": version,
        "over": over or job.phase is Phase.ENDED,
        "wants": [_want(want, now_us) for want in job.capacity.wants.values()],
        "held": sorted(name for name, grant in grants.items() if grant.returned is None),
    }


def _want(want: Want, now_us: int) -> dict[str, Any]:
    deadline_us = want.deadline_us
    return {
        "number": want.number,
        "names": list(want.names),
        "standby": want.standby,
        "need": str(want.need),
        "like": want.like,
        "avoid": list(want.avoid),
        "left_s": max(0, deadline_us - now_us) / 1e6 if deadline_us else None,
        "tries": want.tries,
        "waits": bool(want.denied),
    }


def engine_waits(
    job: Job, queue: Mapping[MachineId, Queued]
) -> Iterator[tuple[str, tuple[MachineId, ...], int, bool]]:
    """Yield for each want what is waited for, its machines, since when, and whether the job
    stands meanwhile."""
    for want in job.capacity.wants.values():
        what = "a standby" if want.need is Need.STANDBY else "a machine"
        if len(want.names) > 1:
            what = f"{len(want.names)} {what[2:]}s"
        said = _queue_text(want, queue)
        yield f"{what} from {job.spec.engine}{said}", want.names, want.since_us, _stands(want)


def _stands(want: Want) -> bool:
    return want.need is not Need.STANDBY


def _queue_text(want: Want, queue: Mapping[MachineId, Queued]) -> str:
    if want.denied:
        return f": denied at the last try ({want.denied})"
    known = [(name, queue[name]) for name in want.names if name in queue]
    places = [f"{name} is number {one.place}" for name, one in known[:NAMED_MAX] if one.place]
    why = next((one.why for _, one in known if one.why), "")
    text = f"; {', '.join(places)} in the queue" if places else ""
    return f"{text} ({why})" if why else text


def engine_sentences(before: Job, event: Event, after: Job) -> list[str]:
    """Return what the engine has said, and what is asked of it, in sentences."""
    engine = after.spec.engine
    said = _answer(engine, event, before, after)
    wants = after.capacity.wants.items() - before.capacity.wants.items()
    for number, want in sorted(wants, key=lambda item: item[0]):
        if number not in before.capacity.wants:
            count = len(want.names)
            said.append(f"{count} machine{'s' * (count > 1)} wanted from {engine} ({want.need})")
    for name, grant in after.capacity.grants.items():
        was = before.capacity.grants.get(name)
        if grant.returned is not None and (was is None or was.returned is None):
            said.append(f"{name} goes back to {engine} ({grant.returned})")
    return said


def _answer(engine: str, event: Event, before: Job, after: Job) -> list[str]:
    match event:
        case MachinesGranted(machines=machines):
            named = [f"{m.machine} on {m.node}" if m.node else m.machine for m in machines]
            return [f"{engine} has started {', '.join(named)}"]
        case MachinesDenied(why=why, text=text, want=want) if want in after.capacity.wants:
            retry_s = max(after.capacity.wants[want].retry_us - event.at_us, 0) / 1e6
            words = f": {text}" if text else ""
            return [f"{engine} denies ({why}{words}); it is asked again in {retry_s:.0f} s"]
        case EngineNoticed(machine=machine) if before.cordoned is not after.cordoned:
            text = f" ({event.text})" if event.text else ""
            return [f"{engine} tells of {machine}: {event.kind}{text}"]
        case _:
            return []
