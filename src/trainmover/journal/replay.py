"""A job's state from its journal: `decide` folded over the events, effects discarded."""

from pathlib import Path

from trainmover.controller.decide import decide
from trainmover.controller.state import Job
from trainmover.journal.journal import Journal


def replay(path: str | Path) -> Job:
    """The job as the controller that wrote the journal last knew it. Raises UserError."""
    with Journal.open(path) as journal:
        job = Job(spec=journal.spec)
        for _, event in journal.events():
            job, _effects = decide(job, event)
    return job
