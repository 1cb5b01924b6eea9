# SPDX-License-Identifier: Apache-2.0
"""Record of a run of the demo, and the verdict on two of them: equal bit for bit, or where not."""

import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from trainmover.controller.state import Incident, Job, Kind, Outcome
from trainmover.ids import MachineId, Rank, Step
from trainmover.journal import CommittedRow, Journal
from trainmover.server.view.snapshot import incident_json


@dataclass(frozen=True)
class Span:
    """Time of a machine in one state, microseconds of the host's clock."""

    machine: MachineId
    state: str
    from_us: int
    to_us: int


@dataclass(frozen=True)
class Recording:
    """One run: every committed step of every rank, how it ended, what happened to machines."""

    rows: list[CommittedRow]
    job: Job
    spans: list[Span]

    @classmethod
    def of(cls, journal: Path, job: Job, spans: list[Span]) -> "Recording":
        """Read the rows of a finished run."""
        with Journal.open(journal) as source:
            return cls(list(source.rows()), job, spans)

    @property
    def losses(self) -> dict[tuple[Rank, Step], float]:
        """(rank, step) -> the loss that was committed."""
        return {(row.rank, row.step): row.values["loss"] for row in self.rows}

    @property
    def mean_losses(self) -> dict[Step, float]:
        """Step -> mean over ranks."""
        by_step: dict[Step, list[float]] = {}
        for (_, step), loss in self.losses.items():
            by_step.setdefault(step, []).append(loss)
        return {step: statistics.fmean(values) for step, values in sorted(by_step.items())}

    @property
    def step_ms_median(self) -> float:
        """Median time between neighbouring steps of one epoch, over all ranks."""
        return statistics.median(
            (b.at_us - a.at_us) / 1000.0
            for a, b in pairwise(self.rows)
            if (b.rank, b.step, b.epoch) == (a.rank, a.step + 1, a.epoch)
        )


def differences(one: Recording, other: Recording) -> list[str]:
    """Return a sentence for each kind of difference; empty if the two are equal bit for bit."""
    found = []
    ours, theirs = _bits(one), _bits(other)
    if ours.keys() != theirs.keys():
        found.append(f"{len(ours.keys() ^ theirs.keys())} steps were committed in one run only")
    unequal = sorted(key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key])
    if unequal:
        rank, step = min(unequal, key=lambda key: key[1])
        found.append(f"{len(unequal)} losses differ, first at step {step} of rank {rank}")
    if one.job.finished != other.job.finished:
        found.append("the final states differ")
    return found


def _bits(recording: Recording) -> dict[tuple[Rank, Step], dict[str, str]]:
    return {
        (row.rank, row.step): {name: value.hex() for name, value in row.values.items()}
        for row in recording.rows
    }


def missing(job: Job) -> list[str]:
    """Return what the demo set out to show and did not, as sentences."""
    done = {incident.kind for incident in job.incidents if incident.outcome is Outcome.DONE}
    wanted = {Kind.MOVE: "no move was completed", Kind.RECOVERY: "no recovery was completed"}
    return [text for kind, text in wanted.items() if kind not in done]


def report(disturbed: Recording, undisturbed: Recording, faults: list[str]) -> dict[str, Any]:
    """Return the demo's result as one JSON value. faults: why it is no success; empty if it is."""
    return {
        "bitwise_equal": not differences(disturbed, undisturbed),
        "steps": max((row.step for row in disturbed.rows), default=0),
        "ranks": disturbed.job.spec.world_size,
        "losses_compared": len(disturbed.rows),
        "state_digests": sorted({digest for _, digest in disturbed.job.finished.values()}),
        "step_ms_median": round(disturbed.step_ms_median, 3),
        "step_ms_median_undisturbed": round(undisturbed.step_ms_median, 3),
        "incidents": [incident_report(incident) for incident in disturbed.job.incidents],
        "faults": faults,
    }


def incident_report(incident: Incident) -> dict[str, Any]:
    """Return an incident of one rank a machine, with its certificate."""
    value = incident_json(incident)
    wanted = ("kind", "machine", "joiner", "ranks", "rung", "step", "outcome", "cause")
    short = {name: value[name] for name in wanted}
    short["downtime_ms"] = _rounded(incident.downtime_ms)
    short["phases_ms"] = {name: _rounded(ms) for name, ms in incident.phases_ms.items()}
    short["certificate"] = next(iter(value["certificates"]), None)
    return short


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 3)
