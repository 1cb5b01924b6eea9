# SPDX-License-Identifier: Apache-2.0
"""A job's state from its journal: `decide` folded over the events, effects discarded."""

from collections.abc import Iterator
from pathlib import Path

from trainmover.controller.decide import decide
from trainmover.controller.state import Incident, Job
from trainmover.journal.journal import Entry, Journal


def replay(path: str | Path) -> Job:
    """The job as the controller that wrote the journal last knew it. Raises UserError."""
    with Journal.open(path) as journal:
        job = Job(spec=journal.spec)
        for _, event in journal.events():
            job, _effects = decide(job, event)
    return job


def incidents(path: str | Path) -> list[Incident]:
    """All of them, whole: those that are long over have left the job."""
    whole: dict[int, Incident] = {}
    for _, before, job in replayed(path):
        if job.incidents is not before.incidents:
            whole |= {one.number: one for one in job.incidents}
    return [whole[number] for number in sorted(whole)]


def replayed(path: str | Path) -> Iterator[tuple[Entry, Job, Job]]:
    """Every entry with the job before and after it; a note changes nothing."""
    with Journal.open(path) as journal:
        job = Job(spec=journal.spec)
        for entry in journal.entries():
            before = job
            if entry.event is not None:
                job, _effects = decide(before, entry.event)
            yield entry, before, job
