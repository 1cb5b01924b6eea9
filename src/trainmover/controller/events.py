"""Facts that the controller decides on. Each is journaled before its effects leave. Pure."""

import msgspec

from trainmover.ids import MachineId
from trainmover.protocol.messages import WORKER_FACTS, VaultHeld, WorkerExited


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Root of the journal's contents. at_us: the host's clock, microseconds."""

    at_us: int


class MachineJoined(Event, frozen=True):
    """An agent proved the token and was welcomed."""

    machine: MachineId
    standby: bool
    vault: str
    host: str


class MachineLost(Event, frozen=True):
    """An agent's link broke or fell silent. heard_us: when it last gave a sign of life."""

    machine: MachineId
    why: str
    heard_us: int


class WorkerSaid(Event, frozen=True):
    """A worker's fact."""

    machine: MachineId
    local_rank: int
    fact: WORKER_FACTS


class AgentSaid(Event, frozen=True):
    """An agent's fact that matters to membership."""

    machine: MachineId
    fact: WorkerExited | VaultHeld


class MoveRequested(Event, frozen=True):
    """Someone wants the ranks of `machine` elsewhere. request: to answer to."""

    request: str
    machine: str


class KillRequested(Event, frozen=True):
    """A drill: let `machine` die."""

    request: str
    machine: str


class StopRequested(Event, frozen=True):
    """End the job. code: exit status to end with."""

    code: int
    why: str


class Tick(Event, frozen=True):
    """Time has passed; said from time to time while anything depends on that."""


EVENTS = (
    MachineJoined | MachineLost | WorkerSaid | AgentSaid | MoveRequested | KillRequested
    | StopRequested | Tick
)  # fmt: skip
