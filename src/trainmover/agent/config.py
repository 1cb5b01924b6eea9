# SPDX-License-Identifier: Apache-2.0
"""What an agent was told on its command line."""

import sys
from dataclasses import dataclass
from pathlib import Path

from trainmover.fork_server import ForkServer
from trainmover.ids import MachineId
from trainmover.tls.files import TlsFiles

WORKER_COMMAND = (sys.executable, "-u", "-m", "trainmover.worker")


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """directory: private to this machine; None: a fresh one.

    controller_s  how long the controller may be away
    notice_s  from SIGUSR1 or SIGTERM to when this machine is taken away
    notice_file  whose coming says the same
    notice_from  the engine that is asked for the same, as in `engine.ENGINES`; "": none is
    kernel_log  what the kernel says, to be looked through; None: nobody does
    rack     what this machine would be lost together with; "": not known
    fork_server  came with us; workers are forked from it, not executed
    alone    a SIGTERM is about this machine, whatever becomes of the run
    run      process of this host that the whole run lives in; None: not known, or elsewhere
    tls      the job's, which the controller speaks and all that listens here; None: it has none
    """

    controller: str
    machine: MachineId
    nproc: int
    standby: bool
    token_file: Path
    directory: Path | None = None
    role: str = "default"
    shutdown_s: float = 5.0
    controller_s: float = 60.0
    notice_s: float = 30.0
    notice_file: Path | None = None
    notice_from: str = ""
    kernel_log: Path | None = None
    worker: tuple[str, ...] = WORKER_COMMAND
    rack: str = ""
    fork_server: ForkServer | None = None
    alone: bool = False
    run: int | None = None
    tls: TlsFiles | None = None
