# SPDX-License-Identifier: Apache-2.0
"""`trainmover trace 2 -o incident.json`: what every process did, on one time axis."""

import argparse
import json
import os
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any

from trainmover.cli.options import which_run
from trainmover.cli.output import say, say_json
from trainmover.cli.report.chrome import clipped, trace
from trainmover.cli.report.lanes import drawing
from trainmover.cli.report.timeline import Timeline, step_spans
from trainmover.controller.state import Incident
from trainmover.errors import UserError
from trainmover.ids import Step
from trainmover.journal import Journal

AROUND_US = (100_000, 5_000_000)
"""What is shown before and after an incident: a quarter of it, at least and at most."""
ROWS_MAX = 200_000
FORMS = (".json", ".svg")


def main(options: argparse.Namespace) -> int:
    """0 when it is written."""
    if options.whole and options.number is not None:
        raise UserError(
            f"--whole and incident {options.number} contradict each other.",
            means="Nothing was written.",
            do="Give one of them.",
        )
    if options.out is not None and options.out.suffix not in ("", *FORMS):
        raise UserError(
            f"--out {options.out} is none of {' and '.join(FORMS)}.",
            means="Nothing was written.",
            do="Name a .json for Perfetto or chrome://tracing, or a .svg for a picture.",
        )
    path = options.journal or Path(which_run(options).journal)
    with Journal.open(path) as journal:
        line = Timeline.of(journal.spec, (event for _, event in journal.events()))
        incident = None if options.whole else _chosen(line, options.number)
        line = _part(journal, line, incident)
    out = options.out or _unused(
        "run.json" if incident is None else f"incident-{incident.number}.json"
    )
    _write(out, line)
    _say(out, line, incident, as_json=options.json)
    return 0


def _unused(name: str) -> Path:
    """Return a file of that name, which the user has not chosen. Raises UserError if there is
    one."""
    if os.path.lexists(name):
        raise UserError(
            f"{name} exists already.",
            means="Nothing was written: it may be another file of yours.",
            do=f"Have it written over: --out {name}. Or give --out another name.",
        )
    return Path(name)


def _chosen(line: Timeline, number: int | None) -> Incident:
    incidents = line.incidents
    if incidents and number is None:
        return incidents[-1]
    for incident in incidents:
        if incident.number == number:
            return incident
    there = f"there are {len(incidents)}" if incidents else "there was none"
    raise UserError(
        f"There is no incident {number}: {there}." if number else "There was no incident.",
        means="Nothing was written.",
        do="See what has happened: trainmover events; or give --whole",
    )


def _part(journal: Journal, line: Timeline, incident: Incident | None) -> Timeline:
    """Return a part of the timeline, with the steps of that time."""
    if incident is None:
        line.spans += _steps(journal, line, Step(0), None)
        return line
    from_us, to_us = line.stretch(incident)
    around = min(max((to_us - from_us) // 4, AROUND_US[0]), AROUND_US[1])
    from_us, to_us = from_us - around, to_us + around
    made = list(journal.commits())
    times = [at for _, at in made]
    first = max(0, bisect_left(times, from_us) - 1)
    last = min(len(made) - 1, bisect_right(times, to_us))
    if made:
        line.spans += _steps(journal, line, made[min(first, last)][0], made[last][0])
    return clipped(line, from_us, to_us)


def _steps(journal: Journal, line: Timeline, first: Step, last: Step | None) -> list[Any]:
    """Of all ranks; of the lowest, where they are too many; of none, where those are."""
    ranks = range(journal.spec.world_size)
    count = journal.committed(first, last)
    shown = ranks if count * len(ranks) <= ROWS_MAX else ranks[: count <= ROWS_MAX]
    return list(step_spans(line, journal.rows_between(shown, first, last)))


def _write(path: Path, line: Timeline) -> None:
    try:
        text = drawing(line) if path.suffix == ".svg" else json.dumps(trace(line))
        path.write_text(text)
    except OSError as error:
        raise UserError(
            f"The trace {path} could not be written: {error.strerror}.",
            means="Nothing was changed.",
            do="Give --out a place that can be written.",
        ) from error


def _say(out: Path, line: Timeline, incident: Incident | None, *, as_json: bool) -> None:
    took_ms = (line.end_us - line.begun_us) / 1e3
    if as_json:
        say_json({"file": str(out), "spans": len(line.spans), "ms": took_ms})
        return
    what = "the whole run" if incident is None else f"incident {incident.number}"
    say(f"{out}: {what}, {len(line.spans)} spans in {took_ms:.0f} ms")
    if out.suffix != ".svg":
        say("open it at https://ui.perfetto.dev, or in chrome://tracing")
