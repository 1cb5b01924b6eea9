"""Whether a file is a trace as Perfetto and chrome://tracing read it: what is wrong with it, or
nothing. After the Trace Event Format: complete events, instants, flows and metadata."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

Lane = tuple[int, int]


def faults(trace: dict[str, Any]) -> list[str]:
    events = trace["traceEvents"]
    return [
        fault
        for check in (_fields, _names, _nesting, _flows)
        for fault in check(events)
    ]  # fmt: skip


def _fields(events: list[dict[str, Any]]) -> Iterator[str]:
    wanted = {"X": ("ts", "dur"), "i": ("ts", "s"), "s": ("ts", "id", "cat"), "M": ("args",)}
    wanted["f"] = (*wanted["s"], "bp")
    for event in events:
        missing = {"ph", "name", "pid", "tid", *wanted.get(event.get("ph", ""), ())} - event.keys()
        if missing or event["ph"] not in wanted:
            yield f"{event} lacks {sorted(missing)}"
            continue
        for time in ("ts", "dur"):
            value = event.get(time, 0)
            if not isinstance(value, int | float) or value < 0:
                yield f"{time} of {event}"


def _names(events: list[dict[str, Any]]) -> Iterator[str]:
    named: dict[str, dict[Any, str]] = {"process_name": {}, "thread_name": {}}
    for event in events:
        if event["ph"] == "M" and event["name"] in named:
            key = event["pid"] if event["name"] == "process_name" else (event["pid"], event["tid"])
            if key in named[event["name"]]:
                yield f"{event['name']} {key} twice"
            named[event["name"]][key] = event["args"]["name"]
    for event in events:
        if event["ph"] != "M":
            if event["pid"] not in named["process_name"]:
                yield f"no process {event['pid']}"
            lanes = [tid for pid, tid in named["thread_name"] if pid == event["pid"]]
            if not lanes or min(lanes) > event["tid"]:
                yield f"no thread {event['pid']}, {event['tid']}"


def _spans(events: list[dict[str, Any]]) -> dict[Lane, list[tuple[float, float]]]:
    spans: dict[Lane, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return spans


def _nesting(events: list[dict[str, Any]]) -> Iterator[str]:
    """Of two spans in a lane one contains the other, or they do not meet."""
    for lane, spans in _spans(events).items():
        open_: list[float] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ and open_[-1] <= begin:
                open_.pop()
            if open_ and end > open_[-1]:
                yield f"in lane {lane} a span from {begin} to {end} crosses one to {open_[-1]}"
            open_.append(end)


def _flows(events: list[dict[str, Any]]) -> Iterator[str]:
    """Each has one beginning and one end, in this order, both inside of a span."""
    spans = _spans(events)
    ends: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            if event["ph"] in ends[event["cat"], event["id"]]:
                yield f"flow {event['id']} has two ends {event['ph']}"
            ends[event["cat"], event["id"]][event["ph"]] = event
            lane = spans[event["pid"], event["tid"]]
            if not any(begin <= event["ts"] <= end for begin, end in lane):
                yield f"flow {event['id']} {event['ph']} is in no span"
    for (_, id_), both in ends.items():
        if both.keys() != {"s", "f"} or both["s"]["ts"] > both["f"]["ts"]:
            yield f"flow {id_}: {both}"
