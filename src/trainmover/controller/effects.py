# SPDX-License-Identifier: Apache-2.0
"""What a decision comes to: orders, which the host carries out in order; and the end. Pure."""

from dataclasses import dataclass

from trainmover.controller.state import Incident, Job, Outcome, Phase
from trainmover.controller.values import replace
from trainmover.errors import one_stop
from trainmover.ids import Epoch, MachineId, Step
from trainmover.protocol.messages import Checkpoint, Order


@dataclass(frozen=True)
class Send:
    """Give `order` to the agent of `machine`."""

    machine: MachineId
    order: Order


@dataclass(frozen=True)
class Fence:
    """Close the machine's link for good: nothing it still says counts."""

    machine: MachineId


@dataclass(frozen=True)
class Answer:
    """Reply to a request of the API. `text` says what happened or why not."""

    request: str
    ok: bool
    text: str
    incident: int | None = None


@dataclass(frozen=True)
class Publish:
    """Every rank has written its part: make them a checkpoint, remove the oldest."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class GiveUpCheckpoint:
    """Remove what was written of a checkpoint that is given up."""

    step: Step
    epoch: Epoch


@dataclass(frozen=True)
class FindCheckpoint:
    """Find the newest checkpoint that looks whole, but none of `unusable`, for the epoch."""

    epoch: Epoch
    unusable: frozenset[Step]


@dataclass(frozen=True)
class Closed:
    """An incident that is over has left the job: keep it, for people."""

    incident: Incident


@dataclass(frozen=True)
class End:
    """The job is over. code 0: the script's result stands. text: for the user, or ""."""

    code: int
    text: str


HostOrder = Publish | GiveUpCheckpoint | FindCheckpoint
"""For the host itself."""
Effect = Send | Fence | Answer | Publish | GiveUpCheckpoint | FindCheckpoint | Closed | End
Decision = tuple[Job, tuple[Effect, ...]]


def end(job: Job, code: int, text: str) -> Decision:
    """The job is over with `code`.

    One that was being stopped, and does not end well, ends with the code of the stop.
    """
    text = one_stop(text)
    if code and job.stopping is not None:
        code = job.stopping.code
    incidents = tuple(
        replace(i, outcome=Outcome.FAILED, note=text.split("\n")[0])
        if i.outcome is Outcome.OPEN and code
        else i
        for i in job.incidents
    )
    job = replace(
        job, phase=Phase.ENDED, code=code, ended_because=text, change=None, incidents=incidents
    )
    return job, (End(code, text),)
