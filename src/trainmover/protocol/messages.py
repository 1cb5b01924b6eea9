"""What processes say to each other. Facts travel up (worker, agent, controller), orders down. Pure.

Every order about membership carries an epoch. A worker or an agent that already knows a newer one
ignores the order, so late and doubled messages are harmless. An order to workers is sent to a
machine; its agent hands it to every worker, and a worker finds its rank from the slot:
rank = slot * nproc + local rank.
"""

from typing import Any

import msgspec

from trainmover.errors import ProtocolError
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step

PROTOCOL = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Root of everything that is framed between our processes."""


# --- what a job is --------------------------------------------------------------------------------


class LogSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where workers' output goes, in torchrun's terms.

    log_dir    None: no files
    redirects  stream bits per local rank (1 = stdout, 2 = stderr, 3 = both) written to files only
    tee        stream bits per local rank written to files and shown
    show       global ranks whose output is shown; None: all
    """

    log_dir: str | None = None
    redirects: dict[int, int] = {}
    tee: dict[int, int] = {}
    show: list[int] | None = None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; never changes while the job lives.

    argv             script or module name and its arguments
    machines         how many hold ranks; world size = machines * nproc
    store            host:port of the key-value store that groups meet in
    restarts_max     how often the whole job may start again from nothing (rung 3)
    readiness        what standbys do beforehand: `held` (a second run waits at its first step),
                     `warm` (shadow runs only), `idle` (nothing: their processes are up)
    record           how large outputs of the first steps are kept: `moments` or `full`
    wait_s           seconds a recovery waits for a machine when no standby is left
    """

    run_id: str
    argv: list[str]
    module: bool = False
    machines: int = 1
    standbys: int = 0
    nproc: int = 1
    store: str = ""
    comm: str = "gloo"
    restarts_max: int = 3
    readiness: str = "held"
    record: str = "moments"
    wait_s: int = 0
    log: LogSpec = LogSpec()
    cwd: str = ""

    @property
    def world_size(self) -> int:
        return self.machines * self.nproc

    def ranks(self, slot: Slot) -> list[Rank]:
        return [Rank(slot * self.nproc + local) for local in range(self.nproc)]


# --- facts from workers ---------------------------------------------------------------------------


class WorkerFact(Message, frozen=True):
    """Said by a worker; its agent adds which local rank it was."""


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
    bytes       of what this rank stored
    bytes_full  what storing every output whole would have taken
    held_bytes  of memory that this rank's process holds by now: what the role needs
    """

    rank: Rank
    step: Step
    trace: str
    digest: str
    bytes: int
    signature: str = ""
    record_of: Rank | None = None
    bytes_full: int = 0
    held_bytes: int = 0


class Warm(WorkerFact, frozen=True):
    """A standby has run the script in the sandbox and unwound it.

    held_bytes  of host memory that the run took at its end, before it was unwound
    """

    rank: Rank
    shadow_steps: int
    trace: str
    warm_ms: int
    held_bytes: int = 0


class Held(WorkerFact, frozen=True):
    """A standby has run the script again, as `rank`, and holds it at its first step."""

    rank: Rank
    trace: str
    run_ms: int
    held_bytes: int = 0


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
    """

    rank: Rank
    epoch: Epoch
    committed: Step
    gate: Step
    finished: bool = False


class AtBoundary(WorkerFact, frozen=True):
    """The rank stands between two steps and waits for the switchover to `epoch`."""

    rank: Rank
    epoch: Epoch
    committed: Step


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Proof that a joiner trains on what its source held. Digests are xxh3-128, hex."""

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

    @property
    def equal(self) -> bool:
        return self.source_digest == self.joiner_digest


class Loaded(WorkerFact, frozen=True):
    """A joiner holds the state of its rank."""

    rank: Rank
    epoch: Epoch
    certificate: Certificate


class Switched(WorkerFact, frozen=True):
    """Phase 2 is done on this rank."""

    rank: Rank
    epoch: Epoch
    links_opened: int = 0
    links_kept: int = 0


class Row(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One committed step of one rank; `values` is what the step reported, floats bit exact."""

    step: Step
    at_us: int
    values: dict[str, float]


class Committed(WorkerFact, frozen=True):
    """Steps this rank has committed since it last said so.

    first      whether the first row is the first commit of `epoch`
    gap_us     from this rank's commit before to the first row, on its own clock; None on a joiner
    median_us  of its undisturbed steps; None before there are any
    """

    rank: Rank
    epoch: Epoch
    rows: list[Row]
    first: bool = False
    gap_us: int | None = None
    median_us: int | None = None


class Interrupted(WorkerFact, frozen=True):
    """A link broke under this rank in `epoch`; it has drained."""

    rank: Rank
    epoch: Epoch
    reason: str


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


class Raised(WorkerFact, frozen=True):
    """The script raised; the job ends."""

    rank: Rank
    step: Step
    error: str
    traceback: str


class Left(WorkerFact, frozen=True):
    """A leaver has unwound the script and is free for the pool."""


class Warned(WorkerFact, frozen=True):
    """Something the user should know once; the job goes on."""

    rank: Rank
    text: str


# --- facts from agents ----------------------------------------------------------------------------


class AgentFact(Message, frozen=True):
    """Said by an agent."""


class Hello(AgentFact, frozen=True):
    """First message on a control link, after the token was proved."""

    machine: MachineId
    version: str
    protocol: int
    nproc: int
    standby: bool
    vault: str
    host: str
    pid: int


class Heartbeat(AgentFact, frozen=True):
    """The agent's loop runs."""


class WorkerExited(AgentFact, frozen=True):
    """A worker's process has ended. `code` as in subprocess: negative is a signal."""

    local_rank: int
    pid: int
    code: int


class VaultHeld(AgentFact, frozen=True):
    """Rank records this machine holds for others: for each rank the steps they resume at."""

    epoch: Epoch
    records: dict[Rank, list[Step]]


class Output(AgentFact, frozen=True):
    """Lines of a worker for the screen of whoever ran the job. Never journaled."""

    rank: Rank
    stream: str
    text: str


class FromWorker(AgentFact, frozen=True):
    """A worker's fact on its way up. `payload` is the encoded WorkerFact."""

    local_rank: int
    payload: msgspec.Raw


# --- orders to agents -----------------------------------------------------------------------------


class Order(Message, frozen=True):
    """Sent by the controller to one machine."""


class Welcome(Order, frozen=True):
    """The machine is in."""

    spec: JobSpec


class Refused(Order, frozen=True):
    """The machine is not in, and why; the agent ends with that message."""

    reason: str


class StartWorkers(Order, frozen=True):
    """End the workers there are and start `nproc` fresh ones."""

    epoch: Epoch
    restarts: int


class Die(Order, frozen=True):
    """A drill: SIGKILL the workers and yourself."""


class Shutdown(Order, frozen=True):
    """The job is over: end the workers and yourself.

    kill  at once; otherwise workers get SIGTERM and a moment
    """

    kill: bool = False


# --- orders to workers ----------------------------------------------------------------------------


class WorkerOrder(Order, frozen=True):
    """Handed by the agent to every worker of its machine."""


class RunRank(WorkerOrder, frozen=True):
    """Run the script for real. `buddies`: rank to the vault that keeps its records."""

    epoch: Epoch
    slot: Slot
    buddies: dict[Rank, str]


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """Where a record of first steps lies: under the name of `rank`, in one of `vaults`, the
    likeliest first."""

    rank: Rank
    vaults: list[str]


Records = dict[Rank, list[Stored]]
"""Rank to the records of first steps that serve it, the best first."""


class WarmUp(WorkerOrder, frozen=True):
    """Run the script in the sandbox as the ranks of `slot`, then unwind."""

    slot: Slot
    records: Records


class Hold(WorkerOrder, frozen=True):
    """Run the script in the sandbox as the ranks of `slot`, and stay at its first step in case they
    are lost: a `Bind` to the same slot is then answered at once. Other work ends it."""

    slot: Slot
    records: Records


class Bind(WorkerOrder, frozen=True):
    """Run the script in the sandbox as the ranks of `slot` and park before the next batch."""

    epoch: Epoch
    slot: Slot
    records: Records


class Prepare(WorkerOrder, frozen=True):
    """Phase 1 for `epoch` in the background."""

    epoch: Epoch


class Discard(WorkerOrder, frozen=True):
    """Forget what was prepared for `epoch` and any pause asked for it."""

    epoch: Epoch


class PauseAt(WorkerOrder, frozen=True):
    """Raise the pause flag at your next gate; all ranks stop at the same boundary."""

    epoch: Epoch


class Interrupt(WorkerOrder, frozen=True):
    """The membership is broken. Drain, say your position, wait for the verdict of `epoch`."""

    epoch: Epoch


class Verdict(WorkerOrder, frozen=True):
    """Steps up to `committed` are committed. Apply or retry, then go to the boundary."""

    epoch: Epoch
    committed: Step


class Switch(WorkerOrder, frozen=True):
    """Become epoch `epoch`.

    sources  joining rank to (rank, address) of the worker whose state it takes
    records  joining rank to the vaults that hold its record; empty when its source is itself
    buddies  every rank to the vault that keeps its records from now on
    closing  a script has ended already: no step will follow, so no group is built again
    """

    epoch: Epoch
    committed: Step
    sources: dict[Rank, tuple[Rank, str]]
    records: dict[Rank, list[str]]
    buddies: dict[Rank, str]
    closing: bool = False


class Go(WorkerOrder, frozen=True):
    """Every rank has switched: train."""

    epoch: Epoch


class Leave(WorkerOrder, frozen=True):
    """Your ranks live elsewhere now: unwind the script and say `Left`."""

    epoch: Epoch


class Ending(WorkerOrder, frozen=True):
    """The script of `rank` ended after `step`: whoever enters a later one says `WentOn`."""

    rank: Rank
    step: Step


class Exit(WorkerOrder, frozen=True):
    """Every rank is done: leave the process."""


WORKER_FACTS = (
    WorkerUp | Attached | Recorded | Warm | Held | SandboxFailed | Parked | Prepared | Position
    | AtBoundary | Loaded | Switched | Committed | Interrupted | Finished | WentOn | Raised
    | Left | Warned
)  # fmt: skip
AGENT_FACTS = Hello | Heartbeat | WorkerExited | VaultHeld | Output | FromWorker
WORKER_ORDERS = (
    RunRank | WarmUp | Hold | Bind | Prepare | Discard | PauseAt | Interrupt | Verdict | Switch | Go
    | Leave | Ending | Exit
)  # fmt: skip
ORDERS = Welcome | Refused | StartWorkers | Die | Shutdown | WORKER_ORDERS

_encoder = msgspec.msgpack.Encoder()
_worker_facts: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(WORKER_FACTS)
_agent_facts: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(AGENT_FACTS)
_orders: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ORDERS)


def encode(message: Message) -> bytes:
    """Msgpack of one message, to be framed."""
    return _encoder.encode(message)


def decode_worker_fact(payload: bytes | msgspec.Raw) -> WorkerFact:
    """Raises ProtocolError if `payload` is none."""
    return _decode(_worker_facts, payload)  # type: ignore[no-any-return]


def decode_agent_fact(payload: bytes) -> AgentFact:
    """Raises ProtocolError if `payload` is none."""
    return _decode(_agent_facts, payload)  # type: ignore[no-any-return]


def decode_order(payload: bytes) -> Order:
    """Raises ProtocolError if `payload` is none."""
    return _decode(_orders, payload)  # type: ignore[no-any-return]


def _decode(decoder: "msgspec.msgpack.Decoder[Any]", payload: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise ProtocolError(
            f"A frame could not be read as a message: {error}.",
            means="The connection it came on is closed; nothing else was touched.",
            do="Both ends must run the same version of trainmover.",
        ) from error
