# SPDX-License-Identifier: Apache-2.0
"""The fork server of this process: what it starts on this machine shares one import of torch.

The store is forked from it, and each machine's agent, which gets one of its own, another fork, for
its workers. Where that is not possible (an import starts threads or opens a device) everything is
started by executing it, as on a host that an agent has for itself.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType

from trainmover.fork_server import Birth, Child, ForkServer
from trainmover.lifeline import adopt_orphans, reap

AGENT_MODULE = "trainmover.agent.__main__"
MODULES = ("trainmover.worker.process", "trainmover.server.store", AGENT_MODULE)


def hash_seed_of(fork_server: "ForkServerProcess | None") -> str:
    """Python's, for all workers of a job: what is forked has that of its fork server.

    The user's own PYTHONHASHSEED, if one is set.
    """
    return _drawn_hash_seed() if fork_server is None else fork_server.hash_seed


def _drawn_hash_seed() -> str:
    given = os.environ.get("PYTHONHASHSEED", "")
    return given if given.isdigit() else str(secrets.randbits(32))


class ForkServerProcess:
    """Imports while we do something else; `ready` when that is done. May serve several runs.

    mark       its TRAINMOVER_RUN_ID, and so what the kernel shows of all that is forked from it
    hash_seed  Python's in all that is forked from it
    """

    def __init__(self, *others: str) -> None:
        """others: modules to import, beside ours"""
        adopt_orphans()
        self.mark = f"fork-server-{secrets.token_hex(8)}"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-u", "-P", "-m", "trainmover.fork_server"]
        command += [*MODULES, *others]
        command += ["--parent", str(os.getpid()), "--socket", str(theirs.fileno())]
        self.hash_seed = _drawn_hash_seed()
        words = {"TRAINMOVER_RUN_ID": self.mark, "PYTHONHASHSEED": self.hash_seed}
        environment = os.environ | words
        environment.setdefault("OMP_NUM_THREADS", "1")  # as workers have it, read while importing
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._asked = ForkServer(ours)
        self._ready: bool | None = None
        self._fork_servers: list[int] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> bool:
        """Whether it can be used: waits until it has imported."""
        if self._ready is None:
            self._ready = await asyncio.to_thread(self._asked.said_ready)
        return self._ready

    def bear(self, module: str, arguments: Sequence[str], output: int) -> Child:
        """A process that runs a module's main; errors go where ours go. Raises OSError."""
        environment = os.environ | {"TRAINMOVER_RUN_ID": ""}
        birth = Birth(
            module=module, arguments=list(arguments), environment=environment, title=module
        )
        return Child(self._bear(birth, output, 2)[0])

    def bear_agent(self, arguments: Sequence[str], run_id: str, output: int) -> Child:
        """A machine's agent, with a fork server as its child. Raises OSError."""
        words = {"TRAINMOVER_RUN_ID": run_id, "TRAINMOVER_FORK_SERVER": self.mark}
        birth = Birth(
            module=AGENT_MODULE,
            arguments=list(arguments),
            environment=os.environ | words,
            title=" ".join(["trainmover.agent", *arguments]),
            cwd=os.getcwd(),
            asks=True,
        )
        pid, fork_server = self._bear(birth, output, output)
        self._fork_servers.append(fork_server)
        return Child(pid)

    def _bear(self, birth: Birth, stdout: int, stderr: int) -> list[int]:
        stdin = os.open(os.devnull, os.O_RDONLY)
        try:
            return self._asked.bear(birth, [stdin, stdout, stderr])
        finally:
            os.close(stdin)

    def reap(self) -> None:
        """Collect the fork servers of programs that were killed: they became our children."""
        reap(self._fork_servers)
        self._fork_servers.clear()

    def stop(self) -> None:
        """End it. What was forked from it lives on."""
        self._asked.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> "ForkServerProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()
