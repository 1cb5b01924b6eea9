# SPDX-License-Identifier: Apache-2.0
"""What workers say. Pure."""

import msgspec

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages.root import Message


class WorkerFact(Message, frozen=True):
    """Said by a worker; its agent adds which local rank it was."""


class Written(msgspec.Struct, frozen=True, array_like=True):
    """A file that is safe on disk. digest: xxh3-128 of all of it, hex."""

    file: str
    bytes: int
    digest: str


class WorkerUp(WorkerFact, frozen=True):
    """The process has imported torch and serves state at `address`."""

    pid: int
    address: str
    torch: str
    version: str


class Attached(WorkerFact, frozen=True):
    """The script called `attach()`."""

    rank: Rank


class Recorded(WorkerFact, frozen=True):
    """Set-up and first steps are recorded, and the record is safe with this rank's holders.

    trace       hash of the collectives of one steady step
    digest      of the bulk tracked state: equal digests are replicas
    signature   hash of names, shapes and dtypes of the tracked state; who has equal signature and
                trace has the same role
    record_of   the rank whose record serves this one too; None: its own
    base        the rank whose record has what this one's lacks; None: it lacks nothing
    bytes       of what this rank stored
    bytes_full  what storing every output whole would have taken
    held_bytes  of memory that this rank's process holds by now: what the role needs
    tracked     names that the script gave with `track`
    functions   names of those it marked as steps and has called; loaders: that it iterates with
                `batches`, so far
    length      steps that those loops will make, if none is left early; 0: not known
    objects     that the script holds, and that go along by value; opaque: how many of them do not,
                since each process has its own
    """

    rank: Rank
    step: Step
    trace: str
    digest: str
    bytes: int
    signature: str = ""
    record_of: Rank | None = None
    base: Rank | None = None
    bytes_full: int = 0
    held_bytes: int = 0
    tracked: list[str] = []
    functions: list[str] = []
    loaders: int = 0
    length: int = 0
    objects: int = 0
    opaque: int = 0


class StepsChanged(WorkerFact, frozen=True):
    """Steps are not what they were when the first ones were recorded: what torch has compiled for
    them since is safe with the holders of all ranks.

    step      that showed it
    trace     hash of its collectives
    compiled  hash of what was compiled until then; "": nothing
    """

    rank: Rank
    step: Step
    trace: str
    compiled: str = ""


class Warm(WorkerFact, frozen=True):
    """A standby has run the script in the sandbox and unwound it.

    held_bytes  of host memory that the run took at its end, before it was unwound
    device_bytes  of its GPU's that torch's allocator had taken for it by then
    """

    rank: Rank
    shadow_steps: int
    trace: str
    warm_ms: int
    held_bytes: int = 0
    device_bytes: int = 0


class Held(WorkerFact, frozen=True):
    """A standby has run the script again, as `rank`, and holds it at its first step."""

    rank: Rank
    trace: str
    run_ms: int
    held_bytes: int = 0
    device_bytes: int = 0


class SandboxFailed(WorkerFact, frozen=True):
    """The shadow run did not go like the recorded one.

    again  the first run in this process went well and this later one did not: the script cannot run
           twice in one process
    """

    rank: Rank
    reason: str
    again: bool = False


class Parked(WorkerFact, frozen=True):
    """A bound worker has run the script as `rank` and waits where the next batch is fetched."""

    rank: Rank
    epoch: Epoch
    trace: str
    bind_ms: int


class Prepared(WorkerFact, frozen=True):
    """Phase 1 is done: communicators of `epoch` are ready beside those in use."""

    rank: Rank
    epoch: Epoch
    reason: str = ""


class Position(WorkerFact, frozen=True):
    """Where a rank stood when it drained for `epoch`.

    committed  last step whose update it has applied or is bound to apply
    gate       step in whose commit gate it stands, its record safe; 0: in none
    finished   its script is through
    patience_ms  within which it comes to a boundary, unless its script goes round for ever; 0: it
               may take as long as it likes
    """

    rank: Rank
    epoch: Epoch
    committed: Step
    gate: Step
    finished: bool = False
    patience_ms: int = 0


class AtBoundary(WorkerFact, frozen=True):
    """The rank stands between two steps and waits for the switchover to `epoch`.

    misled  the script has done what cannot be done again, or a collective outside of any step was
            cut short: what it has computed since its last step may be wrong
    """

    rank: Rank
    epoch: Epoch
    committed: Step
    misled: bool = False


class Taking(WorkerFact, frozen=True):
    """How much of its state a joiner has by now, while that takes long. Never journaled."""

    rank: Rank
    epoch: Epoch
    bytes: int
    bytes_whole: int


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Proof that a joiner trains on what its source held. Digests are xxh3-128, hex.

    bytes  of state that were sent while the job waited
    direct of these, from device to device
    held   that the joiner had already
    given  ranks that gave bytes of the state, and how many
    """

    rank: Rank
    source_rank: Rank
    step: Step
    epoch: Epoch
    source_digest: str
    joiner_digest: str
    trace: str
    position: str
    bytes: int
    state_ms: float
    given: dict[Rank, int] = {}
    held: int = 0
    direct: int = 0

    @property
    def equal(self) -> bool:
        return self.source_digest == self.joiner_digest


class Loaded(WorkerFact, frozen=True):
    """A joiner holds the state of its rank."""

    rank: Rank
    epoch: Epoch
    certificate: Certificate


class Unproven(WorkerFact, frozen=True):
    """A joiner does not begin: those who were said to hold its rank's state do not all hold it, or
    it lacks what was lost with the rank.

    holders  who answered -> digest of the shared state that it holds at the boundary
    unlike   those of them who held something else than the lost rank at its last gate
    lacks    what is held by nobody, in a sentence: only a snapshot of all ranks has it
    """

    rank: Rank
    epoch: Epoch
    holders: dict[Rank, str] = {}
    unlike: list[Rank] = []
    lacks: str = ""


class Switched(WorkerFact, frozen=True):
    """Phase 2 is done on this rank."""

    rank: Rank
    epoch: Epoch
    links_opened: int = 0
    links_kept: int = 0


class Draw(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Samples that a step used, from one loop over batches in one data pass.

    source  the loop, the same on every machine; loops inside others say in which batch of those
    """

    source: str
    data_pass: int
    ids: list[int | str]


class Row(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One committed step of one rank; `values` is what the step reported, floats bit exact.

    samples  what it used, of the loops that were asked to say so
    """

    step: Step
    at_us: int
    values: dict[str, float]
    samples: list[Draw] = []


class Took(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a rank itself has taken for a step, in microseconds.

    own_us  from its gate before to this one, but for what it has waited for other ranks
    cpu_us  of it, that its main thread ran on a processor
    waits_us  rank on another host -> for which it has waited there, the longest, since the last one
    """

    step: Step
    own_us: int
    cpu_us: int
    waits_us: dict[Rank, int] = {}


class Committed(WorkerFact, frozen=True):
    """Steps this rank has committed since it last said so.

    first      whether the first row is the first commit of `epoch`
    gap_us     from this rank's commit before to the first row, on its own clock; None on a joiner
    median_us  of its undisturbed steps; None before there are any
    took       its own time of steps among them that nothing has disturbed; [] where nobody counts
               how long it waits
    """

    rank: Rank
    epoch: Epoch
    rows: list[Row]
    first: bool = False
    gap_us: int | None = None
    median_us: int | None = None
    took: list[Took] = []

    @property
    def decided_on(self) -> "Committed | None":
        """What is left of it for `decide`, if it is the epoch's first: JSON has no NaN, and no
        decision depends on a loss."""
        if not self.first:
            return None
        rows = [Row(step=row.step, at_us=row.at_us, values={}) for row in self.rows[:1]]
        return msgspec.structs.replace(self, rows=rows, took=[])


Joint = Prepared | Position | AtBoundary | Switched | Committed
"""What all ranks say at the same moment."""


class Snapped(WorkerFact, frozen=True):
    """The rank's state after `step` is held twice: in this process and in a vault.

    cost_us  for which the step had to wait
    step_us  median of the rank's undisturbed steps; 0: not known yet
    refused  why the vault did not take it; "" if it did
    further  another vault that holds it too by now; "": none, or that is said later
    """

    rank: Rank
    epoch: Epoch
    step: Step
    vault: str
    bytes: int
    cost_us: int
    step_us: int
    refused: str = ""
    further: str = ""


class Wrote(WorkerFact, frozen=True):
    """The rank's part of a checkpoint is on disk, or why it is not: `refused`.

    state, record, compiled  as in `Checkpoint`; the files of the state by their bare names
    """

    rank: Rank
    epoch: Epoch
    step: Step
    state: list[Written] = []
    record: Written | None = None
    compiled: Written | None = None
    refused: str = ""


class Fingerprinted(WorkerFact, frozen=True):
    """Hashes of all that the rank tracks after `step`, 8 bytes for each path; see `fingerprint`.

    layout    hash of `paths` and `sections`
    paths     what the hashes belong to; None: another rank of this layout says it, or has said it
    sections  how many paths are shared state, buffers, small state; [] without `paths`
    like      a rank whose shared state has the same hashes: they are not said again
    rest      hashes of buffers and small state
    read      bytes of tensors that were hashed, in `took_us`
    """

    rank: Rank
    epoch: Epoch
    step: Step
    layout: str
    paths: list[str] | None = None
    sections: list[int] = []
    like: Rank | None = None
    shared: bytes = b""
    rest: bytes = b""
    read: int = 0
    took_us: int = 0


class Weighed(WorkerFact, frozen=True):
    """What a rank's process holds in memory: after its first steps, after its first snapshot, and
    after each change of members. Never journaled.

    kinds  bytes by what they are for
    rss    of the whole process, now; and `peak`, the most since it began
    """

    rank: Rank
    kinds: dict[str, int]
    rss: int
    peak: int


class Stands(WorkerFact, frozen=True):
    """The rank has stood at one place for longer than its deadline. Said once for each place.

    where     `call` (waits for other ranks), `script`, `fetch` (of a batch), or `runtime` (waits
              for something of ours: another machine's vault, an order)
    counts    group -> collectives that it has begun there in this epoch
    call      the one it is in, for people; "" outside
    group     whose newest collective it waits in, as in `counts`; "" if it waits for something else
    place     line of the script, for people; "" if that is not known
    still_ms  since nothing moved
    """

    rank: Rank
    epoch: Epoch
    step: Step
    where: str
    counts: dict[str, int]
    still_ms: int
    deadline_ms: int
    call: str = ""
    group: str = ""
    place: str = ""


class Moves(WorkerFact, frozen=True):
    """The rank, which stood still, goes on."""

    rank: Rank
    epoch: Epoch


class Watched(WorkerFact, frozen=True):
    """How long a rank may stand at one place before it says so. Never journaled.

    deadline_ms  0: it is not watched now; why is in `paused`
    """

    rank: Rank
    deadline_ms: int
    paused: str = ""


class Interrupted(WorkerFact, frozen=True):
    """A link broke under this rank in `epoch`; it has drained.

    unusable  step of whose snapshots none that this rank could have had is whole; 0: that is not it
    storeless  its machine does not reach the job's store, where groups meet
    """

    rank: Rank
    epoch: Epoch
    reason: str
    unusable: Step = Step(0)
    storeless: bool = False


class Finished(WorkerFact, frozen=True):
    """The script has ended. `digest` covers all tracked state; empty without `attach()`."""

    rank: Rank
    step: Step
    code: int
    digest: str
    attached: bool


class WentOn(WorkerFact, frozen=True):
    """The rank entered `step` although another rank's script has ended before it."""

    rank: Rank
    step: Step


class BetweenSteps(WorkerFact, frozen=True):
    """The script does between its steps what cannot be done again: it makes collectives, or changes
    bulk state behind the fetch of a batch.

    step     after which the first was heard; where: file and line, "" if that is not known
    changed  names of what it changes; "": it makes collectives
    """

    rank: Rank
    step: Step
    where: str = ""
    changed: str = ""


class Raised(WorkerFact, frozen=True):
    """The script raised; the job ends, unless that came of a loss.

    misled  a collective was cut short since the last boundary: what it gave is nobody's value
    """

    rank: Rank
    step: Step
    error: str
    traceback: str
    misled: bool = False


class Left(WorkerFact, frozen=True):
    """A leaver has unwound the script and is free for the pool."""


class Warned(WorkerFact, frozen=True):
    """Something the user should know once; the job goes on."""

    rank: Rank
    text: str


UNJOURNALED = Taking | Weighed | Watched
"""For whoever looks at the job: nothing is decided on them."""
