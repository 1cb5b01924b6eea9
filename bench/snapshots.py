# SPDX-License-Identifier: Apache-2.0
"""What snapshots cost at the interval they find for themselves: a part of `bench.state`."""

import statistics
import tempfile
from pathlib import Path

from trainmover.journal import Journal
from trainmover.launch.run_job import RunOptions, run_job
from trainmover.protocol.messages import LogSpec

SCRIPT = Path(__file__).with_name("sharded_job.py")
MACHINES = 3
FIRST = 40
"""Steps before do not count, since in them the interval is found."""


def snapshot_overhead(rounds: int, steps: int) -> float:
    """Time of a run with snapshots to that of one without; the median of the rounds' ratios."""
    ratios = []
    for turn in range(rounds):
        arms = (None, 0) if turn % 2 == 0 else (0, None)
        took = {every: seconds(every, steps) for every in arms}
        ratios.append(took[None] / took[0])
    return statistics.median(ratios)


def seconds(every: int | None, steps: int, machines: int = MACHINES, first: int = FIRST) -> float:
    """From step `first` to the last. every: as `snapshot_every` of the job."""
    with tempfile.TemporaryDirectory(prefix="bench-snapshots-") as folder:
        journal = Path(folder) / "journal.sqlite"
        options = RunOptions(
            argv=[str(SCRIPT), "--steps", str(steps)],
            machines=machines,
            snapshot_every=every,
            journal=journal,
            log=LogSpec(show=[]),
        )
        ended = run_job(options)
        if ended.code:
            raise RuntimeError(ended.text)
        with Journal.open(journal) as source:
            at_us = {row.step: row.at_us for row in source.rows() if row.rank == 0}
    return (max(at_us.values()) - at_us[first]) / 1e6  # type: ignore[index]
