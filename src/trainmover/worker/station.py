"""What a worker process has before it has a rank, and keeps when its rank moves on."""

from dataclasses import dataclass, field

from trainmover.protocol.messages import JobSpec
from trainmover.state.transfer import StateServer
from trainmover.worker.link import ControlLink
from trainmover.worker.standing import Standing
from trainmover.worker.stores import Stores


@dataclass(frozen=True)
class Station:
    """Shared by the control thread and the main thread.

    server  gives this process's state to joiners
    stores  connections to where groups meet
    """

    spec: JobSpec
    token: bytes
    local_rank: int
    link: ControlLink
    server: StateServer
    stores: Stores
    standing: Standing = field(default_factory=Standing)
