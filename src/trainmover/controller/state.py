# SPDX-License-Identifier: Apache-2.0
"""What the controller knows of a job: values that `decide` replaces and never changes. Pure."""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from trainmover.controller.compare.known import Comparison
from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.policies.anomalies.known import Anomalies
from trainmover.controller.policies.capacity.known import Capacity
from trainmover.controller.policies.health.known import Health
from trainmover.controller.policies.plans.known import Placement, Roll
from trainmover.controller.policies.stragglers.known import Stragglers
from trainmover.controller.standstill.stuck import Hanging
from trainmover.controller.values import kept_for, replace
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import (
    Certificate,
    Checkpoint,
    JobSpec,
    Position,
    Recorded,
    Snapped,
    Wrote,
)


class MachineState(StrEnum):
    """What a machine's workers are doing. A lost machine is no longer in `Job.machines`."""

    DOWN = "down"  # a worker crashed; fresh ones are started when the job has time for it
    STARTING = "starting"  # processes come up
    IDLE = "idle"  # processes are up and have no work yet
    WARMING = "warming"  # in the sandbox
    WARM = "warm"  # a standby; may hold a run of one slot at its first step: Machine.held
    HOLDING = "holding"  # runs the script again, to hold that run at its first step
    COLD = "cold"  # the sandbox failed: see Machine.note
    BOUND = "bound"  # runs as a joiner, from `Bind` to `Go`
    LEAVING = "leaving"  # unwinds the script, from `Leave` to `Left`
    ACTIVE = "active"  # holds ranks


@dataclass(frozen=True)
class Attestation:
    """What a standby has proven for one kind of slot, by running the script as such a one.

    at_us       when its shadow step last had the recorded trace
    warm_ms     of the run that warmed it; 0 if it was only ever held
    run_ms      of the run made to be held: what binding costs; None before there was one
    held_bytes  of host memory that a run takes; device_bytes: of its GPU's
    failed      why it cannot take such a slot; "" if it can
    stale       to be proven again: it is old, or the steady trace of the job has changed
    """

    at_us: int
    warm_ms: int = 0
    run_ms: int | None = None
    held_bytes: int = 0
    device_bytes: int = 0
    failed: str = ""
    stale: bool = False


@dataclass(frozen=True)
class Cordon:
    """Why a machine takes no ranks, in somebody's words or "", and since when.

    until_us  when it is taken away by its owner, who has said so; 0: nobody has
    health    it was examined, or is, and that is why
    failing   it seems about to fail: its ranks are to go
    drained   its ranks are to go, and then it goes back to its engine
    spared    only a policy keeps it out, for what may be worse there and is not wrong: before the
              job waits for a machine, or ends, it takes ranks
    """

    at_us: int
    reason: str = ""
    until_us: int = 0
    health: bool = False
    failing: bool = False
    drained: bool = False
    spared: bool = False


@dataclass(frozen=True)
class Machine:
    """One machine with a live agent.

    rack        named by whoever started it, if anybody has; see `domain`
    workers     local rank -> address where that worker serves state
    pids        local rank -> its process, also once that has crashed
    gone        processes that fresh ones have replaced: what is still heard of them is late
    torch       version that its workers run, and `version` that of trainmover; "" before one is up
    said        local ranks that have said what the present state waits for (warm, parked, left)
    crashes     workers lost in the sandbox in a row
    killed_us   when a drill ordered its death
    work        slot as which it warms up, or makes the run to be held
    held        slot of the run that it holds at its first step
    run         number of the newest run in the sandbox that it was told to make
    once        why the script cannot run twice in one process, so that every run here gets fresh
                ones; "" if it can
    suspect     why it gets no ranks again once it has left those it has; "" if it may
    doubt       slot as which a later run in one process failed: its run in a fresh one will tell
                whether that was the process or the slot
    cold_us     first tick that has seen it cold; None: it is not, or none has
    tries       how often it was tried again since it was last warm
    outdated    the warm-up under way began before the steps of the job changed: it proves little
    attests     first slot of a kind -> what is proven for that kind
    """

    id: MachineId
    standby: bool
    vault: str
    host: str
    rack: str = ""
    state: MachineState = MachineState.STARTING
    workers: dict[int, str] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    torch: str = ""
    version: str = ""
    said: frozenset[int] = frozenset()
    note: str = ""
    crashes: int = 0
    killed_us: int | None = None
    work: Slot | None = None
    held: Slot | None = None
    run: int = 0
    once: str = ""
    suspect: str = ""
    doubt: Slot | None = None
    cold_us: int | None = None
    tries: int = 0
    outdated: bool = False
    attests: dict[Slot, Attestation] = field(default_factory=dict)

    def proven(self, first: Slot | None) -> bool:
        """Whether it has shown, not too long ago, that it can take slots of this kind."""
        attest = self.attests.get(first) if first is not None else None
        return attest is not None and not attest.failed and not attest.stale

    def why_unfit(self, first: Slot | None) -> str:
        """Why it failed the warm-up of this kind; "" if it did not."""
        attest = self.attests.get(first) if first is not None else None
        return attest.failed if attest is not None else ""

    @property
    def domain(self) -> str:
        """What it would be lost together with."""
        return self.rack or self.host

    @property
    def place(self) -> tuple[str, int, str]:
        """Natural order: m2 before m10."""
        return _place(self.id)


@cache
def _place(machine: MachineId) -> tuple[str, int, str]:
    match = re.fullmatch(r"(.*?)(\d*)", machine)
    assert match is not None
    return (match[1], int(match[2] or 0), machine)


class Machines(Facts[MachineId, Machine]):
    """All of a job, and how many are in each state.

    >>> known = Machines().having("m1", Machine("m1", False, "v", "h"))
    >>> known.count(MachineState.STARTING), known.count(MachineState.IDLE)
    (1, 0)
    """

    __slots__ = ("_counts",)

    def __init__(self, known: Mapping[MachineId, Machine] | None = None) -> None:
        super().__init__(known)
        self._counts = Counter(machine.state for machine in self.values())

    def having(self, key: MachineId, value: Machine) -> "Machines":
        new = super().having(key, value)
        assert isinstance(new, Machines)
        new._counts = self._counts.copy()
        new._counts[value.state] += 1
        if key in self:
            new._counts[self[key].state] -= 1
        return new

    def without(self, keys: Set[MachineId]) -> "Machines":
        return Machines({name: machine for name, machine in self.items() if name not in keys})

    def count(self, state: MachineState) -> int:
        """Those that are in it."""
        return self._counts[state]


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
    hedges    slot -> second machine that is bound to it: see `standby.hedging`
    begun_us  when the change began, or its newest epoch did
    leavers   slot -> machine that had it; for a move the machine still trains
    missing   slots for which there is no machine yet; the recovery waits for one
    until_us  how long it waits
    back      all ranks go back to the newest cut, and run the script again from there
    disk      that cut is a checkpoint, and which one is not known before it was read
    checkpoint  the one that is whole
    on_way    joiners that have been told to which step: their script may have gone there since
    misled    ranks whose script has seen less than whole values since its last step
    since_us  when all were told to come to their boundary, or to unwind; 0: not yet
    lacking   what was lost with the ranks, and only a cut has: all are to go back; "": nothing
    facts     below: rank -> what it said for this epoch
    """

    kind: Kind
    epoch: Epoch
    stage: Stage
    incident: int
    joiners: dict[Slot, MachineId]
    leavers: dict[Slot, MachineId]
    request: str = ""
    missing: frozenset[Slot] = frozenset()
    until_us: int = 0
    hedges: dict[Slot, MachineId] = field(default_factory=dict)
    begun_us: int = 0
    back: bool = False
    disk: bool = False
    checkpoint: Checkpoint | None = None
    on_way: frozenset[MachineId] = frozenset()
    committed: Step | None = None
    positions: Facts[Rank, Position] = field(default_factory=Facts)
    vaults: Facts[MachineId, dict[Rank, list[Step]]] = field(default_factory=Facts)
    prepared: Ranks = field(default_factory=Ranks)
    at_boundary: Facts[Rank, Step] = field(default_factory=Facts)
    misled: Ranks = field(default_factory=Ranks)
    since_us: int = 0
    lacking: str = ""
    loaded: Ranks = field(default_factory=Ranks)
    switched: Ranks = field(default_factory=Ranks)


@dataclass(frozen=True)
class Cut:
    """Snapshots of all ranks after one step: a state of the whole job that can be gone back to.

    vaults   rank -> address of the vault that has its snapshot; "": none was asked to
    further  rank -> address of another vault that has it too
    workers  rank -> address of the process that has it in memory
    files    rank -> the files that it is put together from
    bytes    of all snapshots together
    cost_us  for which the slowest rank's step had to wait
    """

    step: Step
    vaults: dict[Rank, str]
    workers: dict[Rank, str]
    bytes: int
    cost_us: int
    files: dict[Rank, list[str]] = field(default_factory=dict)
    further: dict[Rank, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Writing:
    """A checkpoint that is not complete yet, ordered at since_us. wrote: rank -> its part."""

    step: Step
    epoch: Epoch
    since_us: int = 0
    wrote: dict[Rank, Wrote] = field(default_factory=dict)


@dataclass(frozen=True)
class Stopping:
    """What a job ends with once its last checkpoint is there, of a step behind `after`.

    alone    nobody trains on, since no standby is left: the newest cut is written by whom there is
    why_not  why no checkpoint of it can be there any more; "" while nothing stands against it
    """

    code: int
    why: str
    until_us: int
    after: Step
    alone: bool = False
    why_not: str = ""


class Outcome(StrEnum):
    """How an incident stands."""

    OPEN = "open"
    DONE = "done"
    CANCELLED = "cancelled"  # before the boundary: the job did not notice
    FAILED = "failed"
    SUPERSEDED = "superseded"  # the next incident came before its first commit


@dataclass(frozen=True)
class Option:
    """A way to go on after a loss. ms: what it would have cost, as far as was measured; why: of
    what that is made, or why it could not be."""

    name: str
    ms: float | None
    why: str


class Trigger(StrEnum):
    """Kind of reason for a change of membership: first those of planned moves."""

    MOVE = "planned move"
    DRAIN = "drain"
    ROLL = "roll"
    PLACEMENT = "placement"
    NOTICE = "notice"
    SLOW = "slow machine"
    FAILING = "failing machine"
    CORRUPTION = "silent corruption"
    LOST = "machine lost"
    ENDED = "worker ended"
    STUCK = "rank stuck"
    RAISED = "script raised"
    STANDBY = "standby failed"
    STORE = "store lost"
    DAMAGED = "state damaged"
    LINK = "link broken"
    RESUMED = "resumed"


class Cause(NamedTuple):
    """Reason for a change of membership: its kind, and a sentence for people."""

    trigger: Trigger
    text: str


@dataclass(frozen=True)
class Incident:
    """One event from detection to the first commit after it.

    trigger    kind of what has set it off; `cause` says the same in a sentence
    rung       1 step retried in place, 2 script run again, 3 restarted; 0: planned
    marks      phase -> when it ended, microseconds of the host's clock; `begun`, `heard` start it
    lost       machines that were lost together; `machine` is one of them
    further    machines that are moved with it, and who takes their ranks
    stacks     rank -> where the threads of its process were when it had to be ended
    positions  rank -> where it stood when it drained: what the verdict was made of
    held       lost rank -> steps for which a living machine held its record then
    request    of the API, to be answered when the incident is done; "" once it is
    options    what could have been done, as it was known when it began
    step_ms    median of steps before it, as its ranks have measured them
    failed     the step that did not come through, and the epoch in force then
    redone     steps that were committed and are run again, with the same numbers
    unequal    a step that was not the same when it was made again; "": none was
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
    trigger: Trigger | None = None
    lost: tuple[MachineId, ...] = ()
    further: tuple[tuple[MachineId, MachineId], ...] = ()
    why_rung: str = ""
    options: tuple[Option, ...] = ()
    step_ms: float | None = None
    outcome: Outcome = Outcome.OPEN
    note: str = ""
    request: str = ""
    step: Step | None = None
    failed: tuple[Step, Epoch] | None = None
    redone: int = 0
    unequal: str = ""
    downtime_ms: float | None = None
    marks: dict[str, int] = field(default_factory=dict)
    stacks: dict[Rank, str] = field(default_factory=dict)
    positions: dict[Rank, Position] = field(default_factory=dict)
    held: dict[Rank, list[Step]] = field(default_factory=dict)
    certificates: tuple[Certificate, ...] = ()
    committed_first: Ranks = field(default_factory=Ranks)

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
    ENDING = "ending"  # every script is done, and processes leave; or `saves_last`
    ENDED = "ended"


@dataclass(frozen=True)
class Job:
    """Everything `decide` needs.

    seats        slot -> machine that holds it, in force since `epoch`
    epoch_last   highest epoch ever given out: change.epoch while one is under way
    committed    floor of what is committed everywhere: raised by verdicts and boundaries
    lost_early   machines lost before the job began: so many standbys may take part from the start
    unequal      steps that have given other numbers when they were made again, of all ranks
    keepers      slot -> machines whose vaults its ranks were told to keep things in
    keepers_before  slot -> those of the switchovers since one was through: some ranks may not have
                 heard of the newer ones
    torch        version that its ranks have run since it began, also where none is left
    changed      what later steps were found to be, other than those recorded: trace, compiled
    exited       ranks that were through with the script and whose process is gone
    runs         runs in a sandbox that were ordered so far: the number of the last
    retries      attempts in a row without a commit between, a guard against crash loops; that a
                 machine is lost is no attempt
    snapshot_every  committed steps from one cut to the next, as ordered; 0: none are taken
    misled          a collective outside of steps was once cut short
    between         what the script does between its steps that cannot be done again; "" while
                    nothing is known
    no_snapshots    why none are taken though they are needed; "" while nothing stands against it
    cut             the newest that is complete
    snapped         rank -> snapshot of the cut that is not complete yet
    writing         checkpoint that is being written
    checkpoint      the newest that is complete
    checkpointed    step of the newest that was written, or given up
    write_ms        for how long ranks wrote the newest that all have written
    incidents       the open one and the newest that are over; briefs: of those before, what still
                    decides something: see `past`
    store           where groups meet since the first store was lost; "" before: spec.store
    stopping        it was asked to stop, and makes one more checkpoint
    unusable        steps of checkpoints that turned out not to be whole
    hanging         ranks that stand still, and what follows from it
    begun_us        when its first machine came; start_ms: from then to its first commit
    cordoned        machines that take no ranks until they are uncordoned, also those that are gone:
                    who is mended comes back by the same name
    roll, placement  the newest plan, going or not: `plan`
    broken_policies  name of a policy that has raised -> what: it is switched off
    failed_moves    machine -> how often in a row a move of it came to nothing, and when it may
                    be moved again; 0: at any time
    losses          machine and host -> when it was lost, in the last hour before the newest
    takeovers       how often the controller died and another went on; taken_over_us: last when
    away            machines that the controller has no contact with: see `standstill.contact`
    back_us         machine -> when contact was last regained
    wall_ahead_us   how far the host's clock is ahead of job time, which stands while no controller
                    decides; for people, and to compare clocks of machines
    """

    spec: JobSpec
    phase: Phase = Phase.GATHERING
    machines: Machines = field(default_factory=Machines)
    seats: tuple[MachineId, ...] = ()
    epoch: Epoch = Epoch(0)
    epoch_last: Epoch = Epoch(0)
    committed: Step = Step(0)
    attached: Ranks = field(default_factory=Ranks)
    recorded: Facts[Rank, Recorded] = field(default_factory=Facts)
    keepers: dict[Slot, tuple[MachineId, ...]] = field(default_factory=dict)
    keepers_before: dict[Slot, tuple[MachineId, ...]] = field(default_factory=dict)
    torch: str = ""
    changed: frozenset[tuple[str, str]] = frozenset()
    comparison: Comparison = field(default_factory=Comparison)
    finished: Facts[Rank, tuple[Step, str]] = field(default_factory=Facts)
    change: Change | None = None
    incidents: tuple[Incident, ...] = ()
    briefs: tuple[Incident, ...] = ()
    lost_early: int = 0
    unequal: int = 0
    exited: Ranks = field(default_factory=Ranks)
    restarts: int = 0
    retries: int = 0
    runs: int = 0
    snapshot_every: int = 0
    misled: bool = False
    between: str = ""
    no_snapshots: str = ""
    cut: Cut | None = None
    snapped: Facts[Rank, Snapped] = field(default_factory=Facts)
    writing: Writing | None = None
    checkpoint: Checkpoint | None = None
    checkpointed: Step = Step(0)
    write_ms: float | None = None
    unusable: frozenset[Step] = frozenset()
    hanging: Hanging = field(default_factory=Hanging)
    broken_policies: dict[str, str] = field(default_factory=dict)
    failed_moves: dict[MachineId, tuple[int, int]] = field(default_factory=dict)
    losses: dict[tuple[MachineId, str], tuple[int, ...]] = field(default_factory=dict)
    begun_us: int | None = None
    start_ms: float | None = None
    cordoned: dict[MachineId, Cordon] = field(default_factory=dict)
    stragglers: Stragglers = field(default_factory=Stragglers)
    health: Health = field(default_factory=Health)
    anomalies: Anomalies = field(default_factory=Anomalies)
    capacity: Capacity = field(default_factory=Capacity)
    roll: Roll | None = None
    placement: Placement | None = None
    takeovers: int = 0
    taken_over_us: int = 0
    away: frozenset[MachineId] = frozenset()
    back_us: dict[MachineId, int] = field(default_factory=dict)
    wall_ahead_us: int = 0
    store: str = ""
    stopping: Stopping | None = None
    code: int | None = None
    ended_because: str = ""

    @property
    def plan(self) -> Roll | Placement | None:
        """The newest, going or not: moves that follow one another."""
        return self.roll or self.placement

    def shown_us(self, at_us: int) -> int:
        """Return the host's time at that job time, for people. Where somebody has put the clock
        back it is job time: what people read does not run backwards."""
        return at_us + max(0, self.wall_ahead_us)

    @property
    def saves_last(self) -> bool:
        """Whether nothing is done any more but to write the newest cut: then it ends."""
        return self.stopping is not None and self.stopping.alone and self.phase is Phase.ENDING

    def slot_of(self, machine: MachineId) -> Slot | None:
        """The slot a machine holds, None for a standby or a joiner."""
        return slots(self).get(machine)

    @property
    def all_recorded(self) -> bool:
        """Whether every rank's first steps are recorded: from here on rung 1 is possible."""
        return len(self.recorded) == self.spec.world_size

    def vacant(self) -> list[Slot]:
        """Slots whose machine is gone or whose workers crashed, and that are still needed."""
        return [
            Slot(slot)
            for slot, machine in enumerate(self.seats)
            if self._is_empty(machine) and self._is_needed(Slot(slot))
        ]

    def is_vacant(self, slot: Slot) -> bool:
        """Whether it is one of them."""
        return self._is_empty(self.seats[slot]) and self._is_needed(slot)

    def is_announced(self, machine: MachineId) -> bool:
        """Tell whether the machine's owner has said when it will be taken away."""
        cordon = self.cordoned.get(machine)
        return cordon is not None and bool(cordon.until_us)

    def _is_needed(self, slot: Slot) -> bool:
        return not all(rank in self.finished for rank in self.spec.ranks(slot))

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


def with_plan(job: Job, plan: Roll | Placement) -> Job:
    """Its plan is this one."""
    if plan == job.plan:
        return job
    if isinstance(plan, Roll):
        return replace(job, roll=plan, placement=None)
    return replace(job, roll=None, placement=plan)


@kept_for("seats")
def slots(job: Job) -> dict[MachineId, Slot]:
    """Which slot each machine holds, of those that hold one."""
    return {machine: Slot(slot) for slot, machine in enumerate(job.seats)}
