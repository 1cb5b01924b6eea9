# SPDX-License-Identifier: Apache-2.0
"""What is asked and answered over the API, as types. The OpenAPI document is made from them."""

from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from trainmover.controller.policies.capacity.known import Denial, NoticeKind
from trainmover.escaping import ONE_LINE

SEEN = "one line of characters that can be seen"
"""What that pattern is to people."""
MachineName = Annotated[str, Meta(min_length=1, max_length=200, pattern=ONE_LINE)]
Reason = Annotated[str, Meta(max_length=1000, pattern=ONE_LINE)]
Secret = Annotated[str, Meta(min_length=1, max_length=4096)]

# --- what is asked --------------------------------------------------------------------------------


class Kill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machine to kill, as a drill. force: also if that ends the job."""

    machine: MachineName
    force: bool = False


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To move, cordon or uncordon a machine, and why."""

    machine: MachineName
    reason: Reason = ""


class Drain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To cordon machines and move their ranks. also: further ones. left_s: then they are gone."""

    machine: MachineName
    reason: Reason = ""
    also: Annotated[list[MachineName], Meta(max_length=1000)] = []
    left_s: Annotated[float, Meta(ge=-1e9, le=1e9)] | None = None


class Roll(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To have every machine give up its ranks once. machines: none: all. hold: they stay cordoned
    until they are uncordoned; else they get fresh processes."""

    machines: Annotated[list[MachineName], Meta(max_length=20000)] = []
    at_once: Annotated[int, Meta(ge=-1000000, le=1000000)] = 1
    hold: bool = False
    reason: Reason = ""


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To give slots to other machines. seats: slot -> the machine that is to have it. dry_run:
    answer only what would be answered."""

    seats: Annotated[list[MachineName], Meta(max_length=20000)]
    reason: Reason = ""
    dry_run: bool = False


class Steer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To stop the plan, or let it go on. going: to go on."""

    going: bool
    reason: Reason = ""


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """End the job. The body may be missing."""

    reason: Reason = ""


class Enter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is exchanged for a session: a one-time code, or a token."""

    code: Secret | None = None
    token: Secret | None = None


class GrantedOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machine that an engine has started. node: the engine's name for where."""

    machine: MachineName
    node: Annotated[str, Meta(max_length=200, pattern=ONE_LINE)] = ""


class DeniedOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Want of which nothing is granted now. text: in the engine's words. retry_s: 0: it does not
    know when to ask again."""

    want: int
    why: Denial
    text: Reason = ""
    retry_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0


class QueuedOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machine that waits in a queue. place: the first is 1; 0: not known."""

    machine: MachineName
    place: Annotated[int, Meta(ge=0)] = 0
    why: Reason = ""


class Grants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answers of an engine. queued: all that wait, None: as it was."""

    granted: Annotated[list[GrantedOf], Meta(max_length=20000)] = []
    denied: Annotated[list[DeniedOf], Meta(max_length=20000)] = []
    queued: Annotated[list[QueuedOf], Meta(max_length=20000)] | None = None


class EngineNotice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an engine says of a machine that it has granted. left_s: until it is taken away."""

    machine: MachineName
    kind: NoticeKind
    left_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    text: Reason = ""


# --- what is answered -----------------------------------------------------------------------------


class Error(TypedDict):
    """What is wrong with a request."""

    error: str


class Healthy(TypedDict):
    """The controller answers. over: the job has ended, and its processes leave."""

    ok: bool
    over: bool


class Code(TypedDict):
    """For a session of the same role, once, within so many seconds."""

    code: str
    expires_s: float


class Session(TypedDict):
    """session: shown instead of a token (`Authorization: Bearer`), until it ends."""

    role: str
    session: str
    expires_s: float


class Who(TypedDict):
    """Whose token or session came with the request."""

    role: str


class Vote(TypedDict):
    """Where a rank stood when the verdict was made."""

    rank: int
    committed: int
    gate: int
    finished: bool


class CertificateOf(TypedDict):
    """Proof that a joiner trains on what its source held."""

    rank: int
    source_rank: int
    step: int
    epoch: int
    source_digest: str
    joiner_digest: str
    trace: str
    position: str
    bytes: int
    state_ms: float
    given: dict[str, int]
    held: int
    direct: int
    equal: bool


class OptionOf(TypedDict):
    """What could have been done; ms: at what cost, None if that was not known."""

    name: str
    ms: float | None
    why: str


class IncidentOf(TypedDict):
    """From detection to the first commit after it. trouble: out of memory, hardware, network, user
    bug, pre-emption or unknown; "" for a move; read_from: the sentence that says so; way: which of
    the options it was; trigger: kind of its cause;
    phases_before: those in which ranks train on; adds_up: the others, as a sum that is the
    downtime."""

    number: int
    kind: str
    machine: str | None
    joiner: str | None
    ranks: list[int]
    cause: str
    trigger: str | None
    rung: int
    epoch: int
    lost: list[str]
    further: list[tuple[str, str]]
    why_rung: str
    outcome: str
    note: str
    request: str
    step: int | None
    failed: list[int] | None
    redone: int
    unequal: str
    downtime_ms: float | None
    marks: dict[str, int]
    stacks: dict[str, str]
    positions: list[Vote]
    held: dict[str, list[int]]
    certificates: list[CertificateOf]
    committed_first: list[int]
    phases_ms: dict[str, float]
    phases_before: list[str]
    adds_up: str
    options: list[OptionOf]
    step_ms: float | None
    way: str
    trouble: str
    read_from: str


class LossOf(TypedDict):
    """What the loss of a machine would mean now. joiners: slot -> the machine that takes it;
    downtime_ms: None if it is not known; ends: the job would end."""

    machine: str
    joiners: dict[str, str]
    downtime_ms: float | None
    ends: bool
    text: str


class Answer(TypedDict):
    """What came of a request. ok false: nothing was done, and text says why."""

    ok: bool
    text: str
    incident: IncidentOf | None


class WantOf(TypedDict):
    """Machines that are wanted, by the names they are to have. tries: begin anew if it has grown.
    waits: nothing is to be tried now, for it was denied."""

    number: int
    names: list[str]
    standby: bool
    need: str
    like: str
    avoid: list[str]
    left_s: float | None
    tries: int
    waits: bool


class WantsOf(TypedDict):
    """All that is wanted of an engine. held: machines that it is not to end. over: end all."""

    version: int
    over: bool
    wants: list[WantOf]
    held: list[str]


class Entry(TypedDict):
    """Of the journal. kind: of event, or Note; text: for people, or ""; event: the fact itself."""

    seq: int
    at_us: int
    kind: str
    text: str
    event: dict[str, Any] | None


class Losses(TypedDict):
    """Numbers that one committed step of a rank has reported; "nan" and "inf" are texts."""

    rank: int
    step: int
    values: dict[str, float | str]


class Pulse(TypedDict):
    """State that changes all the time, once a second. machines: name -> step, ms a step, away.
    over: the job has ended, or its controller leaves; code, ended_because: how the job has ended,
    None and "" before that."""

    at_us: int
    phase: str
    epoch: int
    step: int
    loss: float | None
    step_ms: float | None
    over: bool
    code: int | None
    ended_because: str
    machines: dict[str, tuple[int | None, float | None, bool]]


class CordonOf(TypedDict):
    reason: str
    since_s: float


class HealthOf(TypedDict):
    """figures: name -> what was measured; the unit ends the name."""

    fit: bool
    failed: str
    figures: dict[str, float]


class MachineOf(TypedDict):
    """step: of its slowest rank; step_ms: of any, since all commit together; None while it has
    none."""

    id: str
    state: str
    ranks: list[int]
    step: int | None
    step_ms: float | None
    last_seen_s: float
    host: str
    rack: str
    cordoned: CordonOf | None
    note: str
    health: HealthOf | None
    away: bool


class RedundancyOf(TypedDict):
    """Standbys that were asked for, that can take ranks now, and that are on their way to that.
    alarm: none is ready while the job trains; text: for people."""

    wanted: int
    ready: int
    coming: int
    alarm: bool
    text: str


class StandbyOf(TypedDict):
    """What one standby has proven for one kind of slots."""

    machine: str
    state: str
    slots: list[int]
    ranks: list[int]
    roles: list[int]
    holds: list[int]
    trace_equal: bool | None
    stale: bool
    warmed_s: float | None
    warm_ms: float | None
    second_run_ms: float | None
    held_bytes: int | None
    device_bytes: int | None
    predicted_ms: float | None
    predicted_else_ms: float | None
    record_bytes: int
    record_bytes_full: int
    cordoned: bool
    torch: str
    trainmover: str
    fresh_processes: bool
    note: str


class RoleOf(TypedDict):
    role: int
    ranks: list[int]
    trace: str
    record_bytes: int
    record_bytes_full: int


class ReplicasOf(TypedDict):
    """The newest comparison; step 0: there was none."""

    step: int
    families: list[list[int]]
    diverged: list[int]
    bytes: int
    cost_ms: float


class DivergenceOf(TypedDict):
    step: int
    since: int
    holders: list[int]
    diverged: list[int]
    kind: str
    paths: list[str]
    text: str


class SnapshotsOf(TypedDict):
    every: int
    step: int | None
    bytes: int
    cost_ms: float | None
    at_hand: bool
    why_none: str


class CheckpointOf(TypedDict):
    folder: str
    every: int
    step: int | None
    bytes: int
    writing: int | None


class RankMemory(TypedDict):
    rank: int
    machine: str | None
    kinds: dict[str, int]
    rss: int
    peak: int


class MachineMemory(TypedDict):
    machine: str
    vault: int
    vault_max: int


class Memory(TypedDict):
    ranks: list[RankMemory]
    machines: list[MachineMemory]


class StandsOf(TypedDict):
    since_s: float
    step: int
    where: str
    what: str


class WatchOf(TypedDict):
    rank: int
    deadline_s: float | None
    paused: str
    stands: StandsOf | None


class SlowOf(TypedDict):
    """Ranks that take longer than those they are compared with. kind: machine, rank, network or
    everybody; peer: of the network's, to which machine the way is slow;
    before, since: milliseconds of steps; done: what was done about it."""

    at_us: int
    epoch: int
    machine: str | None
    kind: str
    ranks: list[int]
    step: int
    steps: int
    own_ms: float
    usual_ms: float
    busier: float
    before: list[float]
    since: list[float]
    peer: str | None
    done: str


class SlowMoveOf(TypedDict):
    """A move for slowness, and what it has come to."""

    slot: int
    leaver: str
    joiner: str
    incident: int
    own_ms: float
    usual_ms: float
    effect: str
    own_after_ms: float
    usual_after_ms: float
    repaid_steps: float | None
    text: str


class StragglersOf(TypedDict):
    """policy: off, watch or act. The newest are last."""

    policy: str
    findings: list[SlowOf]
    moves: list[SlowMoveOf]


class AnomalyOf(TypedDict):
    """What was found of a machine since at_us, so often within an hour. sign: by what; grave: that
    it is believed to fail soon."""

    at_us: int
    machine: str
    sign: str
    text: str
    grave: bool
    done: str
    times: int


class AnomaliesOf(TypedDict):
    """policy: off, watch or act. The newest are last."""

    policy: str
    findings: list[AnomalyOf]


class PlanOf(TypedDict):
    """The newest. kind: roll or placement; standing: going, stopped or done, and why it has
    stopped; moves: that it has begun; left, away, over: machines yet to come, those whose turn it
    is, and those that are through."""

    kind: str
    number: int
    reason: str
    since_s: float
    standing: str
    why: str
    moves: int
    left: list[str]
    away: list[str]
    over: list[str]
    text: str


class WaitsOf(TypedDict):
    """For so many machines; left_s: then the job ends."""

    machines: int
    ranks: list[int]
    left_s: float


class StateBytes(TypedDict):
    here: int
    whole: int


class ChangeOf(TypedDict):
    """A change of membership under way."""

    kind: str
    stage: str
    epoch: int
    incident: int
    joiners: dict[str, str]
    leavers: dict[str, str]
    missing: list[int]
    waits: WaitsOf | None
    state_bytes: StateBytes | None


class ControllerOf(TypedDict):
    restarts: int
    since_s: float | None


class JournalOf(TypedDict):
    path: str
    unwritten: int
    why: str


class Asked(TypedDict):
    machines: int
    standbys: int


class WaitingOf(TypedDict):
    """Wait of a job for one thing; until_us 0: without a deadline of its own; stands: no step is
    committed meanwhile."""

    what: str
    machines: list[str]
    ranks: list[int]
    since_us: int
    until_us: int
    stands: bool
    since_s: float | None
    left_s: float | None


class Status(TypedDict):
    """The whole job at one moment."""

    run: str
    version: str
    seq: int
    phase: str
    epoch: int
    step: int
    length: int | None
    loss: float | None
    step_ms: float | None
    world_size: int
    asked: Asked
    machines: list[MachineOf]
    deadlines: dict[str, float]
    relays: dict[str, list[str]]
    waiting: list[WaitingOf]
    redundancy: RedundancyOf
    standbys: list[StandbyOf]
    roles: list[RoleOf]
    replicas: ReplicasOf
    divergences: list[DivergenceOf]
    snapshots: SnapshotsOf
    checkpoint: CheckpointOf | None
    memory: Memory
    watch: list[WatchOf]
    quarantined: dict[str, float]
    stragglers: StragglersOf
    anomalies: AnomaliesOf
    plan: PlanOf | None
    cordoned: dict[str, CordonOf]
    change: ChangeOf | None
    controller: ControllerOf
    unequal: int
    incidents: list[IncidentOf]
    code: int | None
    ended_because: str
    trouble: str
    journal: JournalOf
