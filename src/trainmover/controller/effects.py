"""Orders that follow from an event; the host carries them out in order. Pure."""

from dataclasses import dataclass

from trainmover.controller.state import Incident
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
    """Read the newest checkpoint that is whole, but for `unusable`, for the change to `epoch`."""

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
