# SPDX-License-Identifier: Apache-2.0
"""What a worker process has before it has a rank, and keeps when its rank moves on."""

from dataclasses import dataclass, field

from trainmover.protocol.messages import JobSpec
from trainmover.state.transfer import StateServer
from trainmover.worker.data.draws import KnownDraws
from trainmover.worker.keep.snapshots import Snapshots
from trainmover.worker.link import ControlLink
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.stores import Stores
from trainmover.worker.termination import Termination
from trainmover.worker.watch.footing import Pulse


@dataclass(frozen=True)
class Station:
    """Shared by the control thread and the main thread.

    server  gives this process's state to joiners
    stores  connections to where groups meet
    torchs  connections to torch's store, for what the script keeps
    snapshots  of the rank's state, which outlive a run of the script
    known_draws  what was drawn for the steps that this process has made, as whichever rank
    termination  what becomes of a SIGTERM that the script does not handle
    pulse   by which the agent sees that the process lives
    """

    spec: JobSpec
    token: bytes
    local_rank: int
    link: ControlLink
    server: StateServer
    stores: Stores
    torchs: Stores
    snapshots: Snapshots
    standing: GuardedStanding = field(default_factory=GuardedStanding)
    pulse: Pulse = field(default_factory=Pulse)
    termination: Termination = field(default_factory=Termination)
    known_draws: KnownDraws = field(default_factory=dict)
