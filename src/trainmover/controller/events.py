# SPDX-License-Identifier: Apache-2.0
"""Facts that the controller decides on. Each is journaled before its effects leave. Pure."""

import msgspec

from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages import (
    WORKER_FACTS,
    Checkpoint,
    Examined,
    Joint,
    Leaving,
    Reached,
    Sign,
    Stack,
    VaultHeld,
    WorkerExited,
    WorkerState,
)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Root of the journal's contents. at_us: the host's clock, microseconds."""

    at_us: int


class MachineJoined(Event, frozen=True):
    """An agent proved the token and was welcomed. incarnation, rack: as in `Hello`."""

    machine: MachineId
    standby: bool
    vault: str
    host: str
    incarnation: str = ""
    rack: str = ""


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Machine that is given up. heard_us: when it last gave a sign of life; ended: its agent's
    process is known to have ended, so it cannot return."""

    machine: MachineId
    why: str
    heard_us: int
    ended: bool = False


class MachinesLost(Event, frozen=True):
    """All the machines that are known to be lost by now: what comes together is one event."""

    lost: list[Lost]


class WorkerSaid(Event, frozen=True):
    """A worker's fact. number: among those of its machine since that joined."""

    machine: MachineId
    local_rank: int
    fact: WORKER_FACTS
    number: int = 0


class WorkersSaid(Event, frozen=True):
    """What ranks of a machine have said to the same order. number: of all of it."""

    machine: MachineId
    facts: list[Joint]
    number: int = 0


class AgentSaid(Event, frozen=True):
    """An agent's fact that matters to membership. number: as for a worker's."""

    machine: MachineId
    fact: WorkerExited | VaultHeld | WorkerState | Stack | Reached | Leaving | Examined | Sign
    number: int = 0


class MoveRequested(Event, frozen=True):
    """Someone wants the ranks of `machine` elsewhere. request: to answer to. reason: of his."""

    request: str
    machine: str
    reason: str = ""


class KillRequested(Event, frozen=True):
    """A drill: let `machine` die."""

    request: str
    machine: str


class HealthRequested(Event, frozen=True):
    """`machine` is to be examined."""

    request: str
    machine: str


class CordonRequested(Event, frozen=True):
    """`machine` is to take no ranks until it is uncordoned. reason: of whoever asks."""

    request: str
    machine: str
    reason: str = ""


class UncordonRequested(Event, frozen=True):
    """`machine` may take ranks again."""

    request: str
    machine: str


class DrainRequested(Event, frozen=True):
    """`machines` are to take no ranks, and those that they have are to go elsewhere, all at once.

    until_us  when they will be gone; 0: nobody hurries
    """

    request: str
    machines: list[str]
    reason: str = ""
    until_us: int = 0


class RollRequested(Event, frozen=True):
    """Every machine is to give up its ranks once.

    machines  in any order; none: all there are
    at_once   so many at a time
    hold      each stays cordoned then, until somebody uncordons it
    """

    request: str
    machines: list[str] = []
    at_once: int = 1
    hold: bool = False
    reason: str = ""


class PlaceRequested(Event, frozen=True):
    """Slots are to go to other machines. seats: slot -> the machine that is to have it."""

    request: str
    seats: list[str]
    reason: str = ""


class PlanSteered(Event, frozen=True):
    """The newest plan, a roll or a placement, is to stop, or to go on. going: to go on."""

    request: str
    going: bool
    reason: str = ""


class StopRequested(Event, frozen=True):
    """End the job.

    code      exit status to end with
    until_us  how long one more checkpoint may take; 0: none is to be made
    """

    code: int
    why: str
    until_us: int = 0


class Tick(Event, frozen=True):
    """Time has passed; said from time to time while anything depends on that."""


class ControllerReturned(Event, frozen=True):
    """A controller has died; its successor knows all that stands before this.

    Until each machine is back in contact (`ContactChanged`), its facts lie in its agent's outbox.

    cut      the journal's end was torn: there was more
    wall_us  the host's own clock, while `at_us` goes on from the journal's newest time
    """

    cut: bool = False
    wall_us: int = 0


class ContactChanged(Event, frozen=True):
    """The controller lost contact with machines, or has them back with all facts they had kept.

    Facts of a machine without contact wait in its agent's outbox, and orders to it wait here, so
    nothing is concluded from what its processes did not do.
    """

    away: list[MachineId] = []
    back: list[MachineId] = []


class StoreMoved(Event, frozen=True):
    """The key-value store was lost; a new one is at `address` (host:port)."""

    address: str


class CheckpointPublished(Event, frozen=True):
    """A checkpoint is complete, and safe on disk."""

    checkpoint: Checkpoint


class CheckpointFailed(Event, frozen=True):
    """The checkpoint could not be made complete. why: in the system's words."""

    step: Step
    epoch: Epoch
    why: str


class CheckpointFound(Event, frozen=True):
    """The newest that looks whole, for the change to `epoch`.

    damaged  a sentence for each newer one that does not, and for what is not taken of this one
    """

    epoch: Epoch
    checkpoint: Checkpoint | None
    damaged: list[str]


class SlowSuspected(Event, frozen=True):
    """A machine's ranks were slow in the last few steps, which may be chance."""

    epoch: Epoch
    machine: MachineId
    step: Step


class SlowFound(Event, frozen=True):
    """Ranks take longer for their steps than those they are compared with. See `stragglers`.

    machine   theirs; None: it is not one machine
    kind      whose slowness it is, as `Kind` in `stragglers.pace` has it
    peer      of the network's: to which other machine the way is slow
    steps     so many of the last ones show it; `step` is the newest
    own_ms    medians of the slowest of these ranks, itself
    usual_ms  of the others of its role, in the same steps; of all before, if everybody is slow
    busier    the part of what it takes more for which it ran on its processor
    before, since  its own milliseconds, step by step, the newest last
    """

    epoch: Epoch
    machine: MachineId | None
    kind: str
    ranks: list[Rank]
    step: Step
    steps: int
    own_ms: float
    usual_ms: float
    busier: float = 0.0
    before: list[float] = []
    since: list[float] = []
    peer: MachineId | None = None


class SlowMeasured(Event, frozen=True):
    """How long the ranks that were moved by an incident take for their steps since, and others.

    busier  as in `SlowFound`
    """

    epoch: Epoch
    incident: int
    own_ms: float
    usual_ms: float
    steps: int
    busier: float = 0.0


class AnomalyFound(Event, frozen=True):
    """A machine seems about to fail. See `anomalies`.

    sign   the detector that says so; text: what it has seen
    grave  that the machine, not what runs there, is the matter
    """

    machine: MachineId
    sign: str
    text: str
    grave: bool


class StepsUnequal(Event, frozen=True):
    """Steps that were made again have given other numbers.

    rank, step  of the first one; text: both numbers, for people
    count       how many there are, of all ranks
    """

    rank: Rank
    step: Step
    text: str
    count: int


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """Machine that an engine has started. node: the engine's name for where; "": not known."""

    machine: MachineId
    node: str = ""


class MachinesGranted(Event, frozen=True):
    """The engine has started machines that were wanted."""

    machines: list[Granted]


class MachinesDenied(Event, frozen=True):
    """The engine grants nothing of a want. See `capacity`.

    why       a code of `Denial`; text: in the engine's words
    retry_ms  after which it is worth asking again; 0: the engine knows of no such time
    """

    want: int
    why: str
    text: str = ""
    retry_ms: int = 0


class EngineNoticed(Event, frozen=True):
    """The engine says what becomes of a machine that it has granted.

    kind     a code of `NoticeKind`; text: in the engine's words
    left_ms  until it is taken away; of no meaning for a drain
    """

    machine: MachineId
    kind: str
    left_ms: int = 0
    text: str = ""


EVENTS = (
    MachineJoined | MachinesLost | WorkerSaid | WorkersSaid | AgentSaid | MoveRequested
    | KillRequested | CordonRequested | UncordonRequested | StopRequested | Tick
    | ControllerReturned | ContactChanged | StoreMoved | CheckpointPublished | CheckpointFailed
    | CheckpointFound | SlowSuspected | SlowFound | SlowMeasured | DrainRequested | RollRequested
    | PlaceRequested | PlanSteered | HealthRequested | AnomalyFound | MachinesGranted
    | MachinesDenied | EngineNoticed | StepsUnequal
)  # fmt: skip
REQUESTS = (
    MoveRequested | KillRequested | CordonRequested | UncordonRequested | DrainRequested
    | RollRequested | PlaceRequested | PlanSteered | HealthRequested
)  # fmt: skip
"""Which are answered."""
