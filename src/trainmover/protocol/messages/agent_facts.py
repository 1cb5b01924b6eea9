# SPDX-License-Identifier: Apache-2.0
"""What agents say. Pure."""

import msgspec

from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages.columns import Columns
from trainmover.protocol.messages.root import Message
from trainmover.protocol.messages.worker_facts import Joint


class AgentFact(Message, frozen=True):
    """Said by an agent. What the job depends on is numbered, by counting from 1 on both
    sides, and kept until it is safe: all but `UNNUMBERED`."""


class Hello(AgentFact, frozen=True):
    """First message on a control link, after the token was proved.

    incarnation  made afresh whenever the agent begins anew: its workers and its vault are empty
    rack         what it would be lost together with; "": nothing is known but its host
    """

    machine: MachineId
    version: str
    protocol: int
    nproc: int
    standby: bool
    vault: str
    host: str
    pid: int
    incarnation: str = ""
    rack: str = ""


class Return(AgentFact, frozen=True):
    """First message of an agent that lost its link, in place of `Hello`: its workers run on.

    heard    orders it has obeyed since it joined
    term    of the newest controller that has let it in: no later one gave any of these
    dropped  of its numbered facts it no longer has so many: they were said to be safe
    said     numbered facts since it joined; those that the controller has not taken follow
    """

    machine: MachineId
    incarnation: str
    version: str
    protocol: int
    heard: int
    term: int
    dropped: int
    said: int


class Trunk(AgentFact, frozen=True):
    """First message on a connection by which a machine of the job, a relay, carries what others say
    (`messages.trunk`).

    address  where they reach it
    """

    machine: MachineId
    incarnation: str
    address: str


class Heartbeat(AgentFact, frozen=True):
    """The agent's loop runs.

    vault_bytes  that the machine keeps for others; vault_max: at most
    heard        so many orders since it joined: the controller need not keep them
    free_bytes   of the machine's memory, that could be used; all_bytes: there is; 0: not known
    """

    vault_bytes: int = 0
    vault_max: int = 0
    heard: int = 0
    free_bytes: int = 0
    all_bytes: int = 0


class WorkerExited(AgentFact, frozen=True):
    """A worker's process has ended. `code` as in subprocess: negative is a signal.

    note  what else is known of its end, as that the kernel was short of memory; "" if nothing is
    """

    local_rank: int
    pid: int
    code: int
    note: str = ""


class WorkerState(AgentFact, frozen=True):
    """A worker's process has changed its state, as the kernel or its own pulse shows it.

    state    "" (it runs), `stopped`, `traced` (by a debugger), `blocked` (in the kernel, and cannot
             be killed), `headless` (its main thread is gone), `deaf` (executes no Python)
    since_ms for how long it has been so already
    """

    local_rank: int
    pid: int
    state: str
    since_ms: int = 0


class Stack(AgentFact, frozen=True):
    """Where the threads of a worker stood when it was to be ended; or why that is not known."""

    local_rank: int
    pid: int
    text: str


class Leaving(AgentFact, frozen=True):
    """Whoever owns this machine takes it away in so many milliseconds."""

    left_ms: int


class Sign(AgentFact, frozen=True):
    """The machine's kernel, or a process, has said what machines say that fail, or soon will.

    symptom  name of the rule in `symptoms`
    line     the newest; count: so many since this was last told
    """

    symptom: str
    line: str
    count: int = 1


class Reached(AgentFact, frozen=True):
    """Answer to a `Probe`: the machines whose vault has answered in time."""

    number: int
    machines: list[MachineId]


class Examined(AgentFact, frozen=True):
    """Answer to `Examine`.

    figures   what was measured, by name; the unit ends the name
    failed    what no healthy machine does, in words; "": nothing of that
    clock_us  what the machine's clock said, since 1970; 0: it is not known
    """

    number: int
    figures: dict[str, float]
    failed: str = ""
    clock_us: int = 0


class Found(AgentFact, frozen=True):
    """Answer to `LookFor`: the machines whose vault has answered in time."""

    number: int
    machines: list[MachineId]


class VaultHeld(AgentFact, frozen=True):
    """Rank records this machine holds for others: for each rank the steps they resume at."""

    epoch: Epoch
    records: dict[Rank, list[Step]]


class Output(AgentFact, frozen=True):
    """Lines of a worker for the screen of whoever ran the job. Never journaled."""

    rank: Rank
    stream: str
    text: str


class Unwritten(AgentFact, frozen=True):
    """A log of this machine's workers cannot be written: lines are lost, the job goes on."""

    path: str
    why: str


class FromWorker(AgentFact, frozen=True):
    """A worker's fact on its way up. `payload` is the encoded WorkerFact."""

    local_rank: int
    payload: msgspec.Raw


class CommittedHere(AgentFact, frozen=True):
    """Steps that ranks of this machine have committed, in the order in which their workers told
    them: none is the first of its epoch."""

    told: list[Columns]


class SaidHere(AgentFact, frozen=True):
    """What ranks of this machine have said to the same order, as their workers did: facts of one
    kind, for one epoch."""

    told: list[Joint]


UNNUMBERED = Hello | Return | Trunk | Heartbeat | Output | Found | Unwritten
