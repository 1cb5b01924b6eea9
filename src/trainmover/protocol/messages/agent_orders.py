# SPDX-License-Identifier: Apache-2.0
"""What agents are told. Pure."""

from trainmover.ids import Epoch, MachineId
from trainmover.protocol.messages.job import JobSpec
from trainmover.protocol.messages.root import Message


class Order(Message, frozen=True):
    """Sent by the controller to one machine. What `decide` orders is counted, on both sides: all
    but `UNCOUNTED`."""


class Welcome(Order, frozen=True):
    """The machine is in. term: names the controller that says so, among all of this job."""

    spec: JobSpec
    term: int = 0


class Refused(Order, frozen=True):
    """The machine is not in, and why.

    retry_s  it may say hello, as one that begins anew, after so long; None: its agent ends with
             that message
    """

    reason: str
    retry_s: float | None = None


class Resumed(Order, frozen=True):
    """The machine is in again. What it has not heard follows.

    facts  it need not say again: those up to this number are known
    term  as in `Welcome`
    """

    facts: int
    term: int = 0


class Heard(Order, frozen=True):
    """Facts up to this number are safe: they would survive the controller."""

    facts: int


class BeRelay(Order, frozen=True):
    """Carry what others say: listen for them, and dial the controller for a trunk."""


class GoBehind(Order, frozen=True):
    """Have a relay carry what is said, from now on; if it does not, or not well, all is as before.

    relay    that machine; address: where it listens for that
    ticket   good once, and known to nobody else but a relay that has to hand it over
    """

    relay: MachineId
    address: str
    ticket: str


class FetchBehind(Order, frozen=True):
    """Hand a `GoBehind` to a machine that the controller does not reach, and that this relay does.

    machine  that one, at its vault's address; the others as in `GoBehind`
    """

    machine: MachineId
    vault: str
    address: str
    ticket: str


class StartWorkers(Order, frozen=True):
    """End the workers there are and start `nproc` fresh ones."""

    epoch: Epoch
    restarts: int


class EndWorker(Order, frozen=True):
    """Say where the process stands (`Stack`), then SIGKILL it. Of no effect on another process."""

    local_rank: int
    pid: int
    why: str


class Probe(Order, frozen=True):
    """Dial the vaults of these machines, and say which answer. number: to be said with it."""

    number: int
    vaults: dict[MachineId, str]


class Examine(Order, frozen=True):
    """Measure what the machine can do, beside its workers: memory, disk, processor, network, GPUs.

    number  to be said with the result
    peers   machines whose vaults are sent something, to measure the way there
    """

    number: int
    peers: dict[MachineId, str]


class LookFor(Order, frozen=True):
    """The controller hears nothing of these machines: dial their vaults, say which answer, soon."""

    number: int
    vaults: dict[MachineId, str]


class Die(Order, frozen=True):
    """A drill: SIGKILL the workers and yourself."""


class Shutdown(Order, frozen=True):
    """The job is over: end the workers and yourself.

    kill  at once; otherwise workers get SIGTERM and a moment
    """

    kill: bool = False


UNCOUNTED = (
    Welcome | Refused | Resumed | Heard | LookFor | Shutdown | BeRelay | GoBehind | FetchBehind
)
