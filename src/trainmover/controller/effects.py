# SPDX-License-Identifier: Apache-2.0
"""What a decision comes to: orders, which the host carries out in order; and the end. Pure."""

from dataclasses import dataclass

from trainmover.controller.policies.capacity.known import Need, Returned
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
class Acquire:
    """Ask the engine for `count` machines: the names of the want of this number.

    like         a machine whose kind they are to be of; "": any of the job
    deadline_us  job time after which they are of no use; 0: there is none
    """

    want: int
    count: int
    like: str
    deadline_us: int
    why: Need


@dataclass(frozen=True)
class Release:
    """Let the engine have a machine back. Said of one that it holds no more, it means nothing."""

    machine: MachineId
    why: Returned


@dataclass(frozen=True)
class End:
    """The job is over. code 0: the script's result stands. text: for the user, or ""."""

    code: int
    text: str


HostOrder = Publish | GiveUpCheckpoint | FindCheckpoint
"""For the host itself."""
EngineOrder = Acquire | Release
"""For the engine, which asks for all that is wanted whenever any of them is given."""
Effect = (
    Send | Fence | Answer | Publish | GiveUpCheckpoint | FindCheckpoint | Closed | End | EngineOrder
)
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
