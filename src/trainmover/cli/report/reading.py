# SPDX-License-Identifier: Apache-2.0
"""Journals as a report needs them: of one run, or of all runs of a job that was queued again."""

from array import array
from itertools import count
from pathlib import Path

from trainmover.cli.report.goodput import RunPast
from trainmover.controller.decide import decide
from trainmover.controller.effects import Closed
from trainmover.controller.state import Incident, Job, Phase
from trainmover.errors import UserError
from trainmover.journal import Journal
from trainmover.server.history.bookmarks import closed, find


def family(path: Path) -> list[Path]:
    """Return a journal, and before it those of earlier runs of the same call, kept beside it under
    numbers (see `journal.aside`): the oldest first."""
    numbered = (path.with_name(f"{path.name}.{number}") for number in count(1))
    older: list[Path] = []
    for there in numbered:
        if not there.exists():
            break
        older.append(there)
    return [*older, path]


def runs(paths: list[Path]) -> list[RunPast]:
    """Return what the journals say. Raises UserError for one that is no journal."""
    return [past_of(path) for path in paths]


def past_of(path: Path, job: Job | None = None) -> RunPast:
    """job: as its controller knows it at the end; else it is made of the events, which are many."""
    with Journal.open(path) as journal:
        first = next(journal.entries(0, 1), None)
        if first is None:
            raise UserError(
                f"The journal {path} has no events yet.",
                means="There is nothing to report.",
                do="Ask again when the run has begun.",
            )
        (last,) = journal.entries(journal.seq - 1, journal.seq)  # A live run has more by now.
        whole = job is not None and (not job.incidents or job.incidents[0].number == 1)
        if job is None or not whole:
            job, incidents = _folded(journal)
        else:
            incidents = job.incidents
        spec, launched_us = journal.spec, journal.launched_us
        resumed = 0 if spec.resume is None else spec.resume.step
        steps, at_us = array("q"), array("q")
        for step, at in journal.commits():
            if (
                step > resumed
            ):  # Those before are told from the checkpoint: the run before made them.
                steps.append(step)
                at_us.append(at)
    return RunPast(
        run=spec.run_id,
        machines=spec.machines,
        ranks=spec.world_size,
        begun_us=min(first.at_us, launched_us or first.at_us),
        ended_us=max(last.at_us, at_us[-1] if at_us else 0),
        resumed=resumed,
        over=job.phase is Phase.ENDED,
        code=job.code,
        incidents=incidents,
        steps=steps,
        at_us=at_us,
    )


def _folded(journal: Journal) -> tuple[Job, tuple[Incident, ...]]:
    """Return the job after all events, from the newest bookmark on, and all its incidents."""
    found = find(journal)
    job = Job(spec=journal.spec) if found.known is None else found.known[0]
    past = {} if found.known is None else closed(journal)  # Else other code may have written it.
    for _, event in journal.events(found.seq):
        job, effects = decide(job, event)
        past |= {one.incident.number: one.incident for one in effects if isinstance(one, Closed)}
    past |= {one.number: one for one in job.incidents}
    return job, tuple(past[number] for number in sorted(past))
