"""What the controller knows of a job: values that `decide` replaces and never changes. Pure."""

import itertools
import re
from dataclasses import dataclass, field
from enum import StrEnum

from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import Certificate, JobSpec, Position, Recorded


class MachineState(StrEnum):
    """What a machine's workers are doing. A lost machine is no longer in `Job.machines`."""

    DOWN = "down"  # a worker crashed; fresh ones are started when the job has time for it
    STARTING = "starting"  # processes come up
    IDLE = "idle"  # processes are up and have no work yet
    WARMING = "warming"  # in the sandbox
    WARM = "warm"  # a standby
    COLD = "cold"  # the sandbox failed: see Machine.note
    BOUND = "bound"  # runs as a joiner, from `Bind` to `Go`
    LEAVING = "leaving"  # unwinds the script, from `Leave` to `Left`
    ACTIVE = "active"  # holds ranks


@dataclass(frozen=True)
class Machine:
    """One machine with a live agent.

    workers     local rank -> address where that worker serves state
    pids        local rank -> its process, also once that has crashed
    gone        processes that fresh ones have replaced: what is still heard of them is late
    said        local ranks that have said what the present state waits for (warm, parked, left)
    crashes     workers lost in the sandbox in a row
    killed_us   when a drill ordered its death
    """

    id: MachineId
    standby: bool
    vault: str
    host: str
    state: MachineState = MachineState.STARTING
    workers: dict[int, str] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    said: frozenset[int] = frozenset()
    note: str = ""
    crashes: int = 0
    killed_us: int | None = None

    @property
    def place(self) -> tuple[str, int, str]:
        """Natural order: m2 before m10."""
        match = re.fullmatch(r"(.*?)(\d*)", self.id)
        assert match is not None
        return (match[1], int(match[2] or 0), self.id)


class Kind(StrEnum):
    """Why a membership changes."""

    MOVE = "move"  # planned
    RECOVERY = "recovery"  # unplanned


class Stage(StrEnum):
    """How far a change has come. A move goes bind, prepare, pause, switch; a recovery drain,
    boundary, switch."""

    BIND = "bind"
    PREPARE = "prepare"
    PAUSE = "pause"
    DRAIN = "drain"
    BOUNDARY = "boundary"
    SWITCH = "switch"


@dataclass(frozen=True)
class Change:
    """A change of membership under way.

    epoch     the one it leads to
    joiners   slot -> machine that takes it; empty when nobody was lost (a broken link)
    leavers   slot -> machine that had it; for a move the machine still trains
    facts     below: rank -> what it said for this epoch
    """

    kind: Kind
    epoch: Epoch
    stage: Stage
    incident: int
    joiners: dict[Slot, MachineId]
    leavers: dict[Slot, MachineId]
    request: str = ""
    committed: Step | None = None
    positions: dict[Rank, Position] = field(default_factory=dict)
    vaults: dict[MachineId, dict[Rank, list[Step]]] = field(default_factory=dict)
    prepared: frozenset[Rank] = frozenset()
    at_boundary: dict[Rank, Step] = field(default_factory=dict)
    loaded: frozenset[Rank] = frozenset()
    switched: frozenset[Rank] = frozenset()


class Outcome(StrEnum):
    """How an incident stands."""

    OPEN = "open"
    DONE = "done"
    CANCELLED = "cancelled"  # before the boundary: the job did not notice
    FAILED = "failed"


@dataclass(frozen=True)
class Incident:
    """One event from detection to the first commit after it.

    rung       1 step retried in place, 2 script run again, 3 restarted; 0: planned
    marks      phase -> when it ended, microseconds of the host's clock; `begun`, `heard` start it
    request    of the API, to be answered when the incident is done; "" once it is
    downtime_ms  first commit after - last commit before - median step, the worst over stayers
    """

    number: int
    kind: Kind
    machine: MachineId | None
    joiner: MachineId | None
    ranks: tuple[Rank, ...]
    cause: str
    rung: int
    epoch: Epoch
    why_rung: str = ""
    outcome: Outcome = Outcome.OPEN
    note: str = ""
    request: str = ""
    step: Step | None = None
    downtime_ms: float | None = None
    marks: dict[str, int] = field(default_factory=dict)
    certificates: tuple[Certificate, ...] = ()
    committed_first: frozenset[Rank] = frozenset()

    @property
    def phases_ms(self) -> dict[str, float]:
        """Milliseconds from each mark to the next, in the order they happened."""
        moments = sorted(self.marks.items(), key=lambda mark: mark[1])
        return {
            name: (at - before) / 1000.0 for (_, before), (name, at) in itertools.pairwise(moments)
        }


class Phase(StrEnum):
    """What the job as a whole is doing."""

    GATHERING = "gathering"  # waits for machines
    STARTING = "starting"  # workers come up
    RUNNING = "running"
    ENDING = "ending"  # every script is done; processes leave
    ENDED = "ended"


@dataclass(frozen=True)
class Job:
    """Everything `decide` needs.

    seats        slot -> machine that holds it, in force since `epoch`
    epoch_last   highest epoch ever given out: change.epoch while one is under way
    committed    floor of what is committed everywhere: raised by verdicts and boundaries
    lost_early   machines lost before the job began: so many standbys may take part from the start
    exited       workers that left after the end
    retries      recoveries in a row without a commit between: a guard against crash loops
    """

    spec: JobSpec
    phase: Phase = Phase.GATHERING
    machines: dict[MachineId, Machine] = field(default_factory=dict)
    seats: tuple[MachineId, ...] = ()
    epoch: Epoch = Epoch(0)
    epoch_last: Epoch = Epoch(0)
    committed: Step = Step(0)
    attached: frozenset[Rank] = frozenset()
    recorded: dict[Rank, Recorded] = field(default_factory=dict)
    finished: dict[Rank, tuple[Step, str]] = field(default_factory=dict)
    change: Change | None = None
    incidents: tuple[Incident, ...] = ()
    lost_early: int = 0
    exited: frozenset[Rank] = frozenset()
    restarts: int = 0
    retries: int = 0
    code: int | None = None
    ended_because: str = ""

    def slot_of(self, machine: MachineId) -> Slot | None:
        """The slot a machine holds, None for a standby or a joiner."""
        return Slot(self.seats.index(machine)) if machine in self.seats else None

    @property
    def all_recorded(self) -> bool:
        """Whether every rank's first steps are recorded: from here on rung 1 is possible."""
        return len(self.recorded) == self.spec.world_size

    def vacant(self) -> list[Slot]:
        """Slots whose machine is gone or whose workers crashed, and that are still needed."""
        return [
            Slot(slot)
            for slot, machine in enumerate(self.seats)
            if self._is_empty(machine)
            and not all(rank in self.finished for rank in self.spec.ranks(Slot(slot)))
        ]

    def _is_empty(self, machine: MachineId) -> bool:
        """Whether the seat of `machine` has no rank running: also while it is respawned there."""
        if machine not in self.machines:
            return True
        state = self.machines[machine].state
        if self.phase is Phase.RUNNING:
            return state is not MachineState.ACTIVE
        return state is MachineState.DOWN

    def rank_of(self, machine: MachineId, local_rank: int) -> Rank | None:
        """The rank of a worker that holds one."""
        slot = self.slot_of(machine)
        return None if slot is None else self.spec.ranks(slot)[local_rank]
