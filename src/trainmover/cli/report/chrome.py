# SPDX-License-Identifier: Apache-2.0
"""Spans, moments and flows in the format that Perfetto and chrome://tracing read. Pure.

Times are microseconds since the first of them. Spans of a lane either contain each other or do not
meet: those that would cross are put into a lane of their own beside it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from trainmover.cli.report.timeline import CONTROLLER, ORDERS, Flow, Moment, Span, Timeline, Track

_Lanes = dict[Track, list[list[Span]]]


def clipped(line: Timeline, from_us: int, to_us: int) -> Timeline:
    """Return what falls into a time, cut at its ends."""
    part = Timeline(line.job.spec)
    part.job, part.clocks, part.hosts = line.job, line.clocks, line.hosts
    part.begun_us, part.end_us = from_us, to_us
    part.spans = [
        Span(one.track, one.name, max(one.from_us, from_us), min(one.to_us, to_us), one.said)
        for one in line.spans
        if one.to_us > from_us and one.from_us < to_us
    ]
    part.moments = [one for one in line.moments if from_us <= one.at_us < to_us]
    part.flows = [one for one in line.flows if from_us <= one.from_us and one.to_us <= to_us]
    return part


def lanes(spans: Iterable[Span]) -> _Lanes:
    """Spans by track, each in the first lane of it where it crosses none."""
    placed: _Lanes = {}
    ends: dict[Track, list[list[int]]] = {}
    for span in sorted(spans, key=lambda one: (one.from_us, -one.to_us)):
        rows, open_ = placed.setdefault(span.track, []), ends.setdefault(span.track, [])
        for row, stack in zip(rows, open_, strict=True):
            while stack and stack[-1] <= span.from_us:
                stack.pop()
            if not stack or span.to_us <= stack[-1]:
                row.append(span)
                stack.append(span.to_us)
                break
        else:
            rows.append([span])
            open_.append([span.to_us])
    return placed


def trace(line: Timeline) -> dict[str, Any]:
    """Return the whole file."""
    origin = min([line.begun_us, *(one.from_us for one in line.spans)])
    placed = lanes(line.spans)
    for moment in line.moments:
        placed.setdefault(moment.track, [[]])
    processes = _processes(line, placed)
    threads = _threads(placed)
    events = [*_names(processes, threads)]
    for track, rows in placed.items():
        for number, row in enumerate(rows):
            at = {"pid": processes[track.process], "tid": threads[track] + number}
            events += (_complete(span, at, origin) for span in row)
    for moment in line.moments:
        at = {"pid": processes[moment.track.process], "tid": threads[moment.track]}
        events.append(_instant(moment, at, origin))
    events += _flows(line.flows, placed, processes, threads, origin)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "run": line.job.spec.run_id,
            "begins_at_us": origin,
            "clocks": {
                host: {"behind_us": line.clocks.behind_us(host), "between_us": known}
                for host in sorted(set(line.hosts.values()))
                if (known := line.clocks.known(host)) is not None
            },
        },
    }


def _processes(line: Timeline, placed: _Lanes) -> dict[str, int]:
    named = {track.process for track in placed} - {CONTROLLER}
    order = sorted(named, key=lambda name: (len(name), name))
    return dict(zip([CONTROLLER, *order], count(1), strict=False))


def _threads(placed: _Lanes) -> dict[Track, int]:
    """Return the first number of each track: machines begin with their state, then worker by
    worker."""
    numbers: dict[Track, int] = {}
    used: dict[str, int] = {}
    for track in sorted(placed, key=place):
        first = used.get(track.process, 0) + 1
        numbers[track] = first
        used[track.process] = first + max(1, len(placed[track])) - 1
    return numbers


def place(track: Track) -> tuple[int, str, int, str, bool]:
    """Machines in their order; of each its state first, then worker by worker, and their steps."""
    first = {"incidents": 0, "machine": 0, ORDERS: 1}.get(track.lane, 2)
    of = track.lane.removeprefix("steps of ")
    return len(track.process), track.process, first, of, of != track.lane


def _names(processes: dict[str, int], threads: dict[Track, int]) -> Iterator[dict[str, Any]]:
    for name, pid in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        order = {"sort_index": pid}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": order}
    for track, tid in threads.items():
        at = {"pid": processes[track.process], "tid": tid}
        yield {"ph": "M", "name": "thread_name", **at, "args": {"name": track.lane}}
        yield {"ph": "M", "name": "thread_sort_index", **at, "args": {"sort_index": tid}}


def _complete(span: Span, at: dict[str, int], origin: int) -> dict[str, Any]:
    took_us = max(0, span.to_us - span.from_us)
    lasts = {"ts": span.from_us - origin, "dur": took_us}
    return {"ph": "X", "name": span.name, "cat": span.track.lane, **at, **lasts} | (
        {"args": dict(span.said)} if span.said else {}
    )


def _instant(moment: Moment, at: dict[str, int], origin: int) -> dict[str, Any]:
    return {"ph": "i", "s": "t", "name": moment.name, **at, "ts": moment.at_us - origin}


def _flows(
    flows: Sequence[Flow],
    placed: _Lanes,
    processes: dict[str, int],
    threads: dict[Track, int],
    origin: int,
) -> Iterator[dict[str, Any]]:
    """An arrow leaves a span and arrives in one: both ends name the lane that this is in."""
    orders = Track(CONTROLLER, ORDERS)
    rows = {
        track: {(one.from_us, one.to_us): number for number, row in enumerate(of) for one in row}
        for track, of in placed.items()
    }
    begins = {first: number for (first, _), number in rows.get(orders, {}).items()}
    for id_, flow in enumerate(flows, start=1):
        to = rows.get(flow.track, {}).get((flow.from_us, flow.to_us))
        if to is None or flow.from_us not in begins:
            continue
        known = {"name": "order", "cat": "order", "id": id_}
        tid = threads[orders] + begins[flow.from_us]
        yield {
            "ph": "s", **known, "pid": processes[CONTROLLER], "tid": tid,
            "ts": flow.from_us - origin,
        }  # fmt: skip
        yield {
            "ph": "f", "bp": "e", **known, "pid": processes[flow.track.process],
            "tid": threads[flow.track] + to, "ts": max(flow.from_us, flow.to_us - 1) - origin,
        }  # fmt: skip
