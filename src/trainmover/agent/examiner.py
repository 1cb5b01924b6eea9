# SPDX-License-Identifier: Apache-2.0
"""What this machine can do, measured by a process of its own, which never lasts for ever."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from trainmover.agent.config import AgentConfig
from trainmover.protocol.malformed import MALFORMED
from trainmover.protocol.messages import Examine, Examined

LIMIT_S = 60.0
END_S = 1.0
WORDS_MAX = 500
COMMAND = (sys.executable, "-m", "trainmover.health")


class Measured(msgspec.Struct, frozen=True):
    """What the process prints."""

    figures: dict[str, float]
    failed: str
    clock_us: int


class Examiner:
    """Of one agent. folder: where the disk is measured."""

    def __init__(
        self,
        config: AgentConfig,
        folder: Path,
        command: tuple[str, ...] = COMMAND,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._config = config
        self._folder = folder
        self._command = command
        self._limit_s = limit_s
        self._under_way: set[asyncio.Task[Examined]] = set()

    def examine(self, order: Examine, say: Callable[[Examined], object]) -> None:
        """Begin; whatever comes of it is said, once."""

        def tell(done: asyncio.Task[Examined]) -> None:
            self._under_way.discard(done)
            if not done.cancelled():
                say(done.result())

        task = asyncio.get_running_loop().create_task(self._examined(order))
        self._under_way.add(task)
        task.add_done_callback(tell)

    def close(self) -> None:
        """End what is under way."""
        for task in self._under_way:
            task.cancel()

    async def _examined(self, order: Examine) -> Examined:
        try:
            async with asyncio.timeout(self._limit_s):
                told = await self._measured(order)
        except TimeoutError:
            return _failed(order, f"its examination did not end within {self._limit_s:.0f} s")
        except OSError as error:
            return _failed(order, f"its examination could not begin: {error.strerror or error}")
        if isinstance(told, str):
            return _failed(order, told)
        return Examined(
            number=order.number,
            figures=told.figures,
            failed=told.failed[:WORDS_MAX],
            clock_us=told.clock_us,
        )

    async def _measured(self, order: Examine) -> Measured | str:
        """What it prints; or, in words, what it did instead."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, *self._flags(order), stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe, stderr=pipe,
        )  # fmt: skip
        try:
            said, complaint = await process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            with contextlib.suppress(TimeoutError):  # The kernel may not let it go yet.
                await asyncio.wait_for(process.wait(), END_S)
        if process.returncode:
            lines = complaint.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            return f"its examination ended with {process.returncode}: {lines[-1][:WORDS_MAX]}"
        try:
            return msgspec.json.decode(said, type=Measured)
        except MALFORMED:
            return f"its examination said what makes no sense: {said[:80]!r}"

    def _flags(self, order: Examine) -> list[str]:
        config = self._config
        peers = [f"--peer={name}={address}" for name, address in order.peers.items()]
        tls = [] if config.tls is None else config.tls.flags()
        where = ["--folder", str(self._folder), "--token-file", str(config.token_file)]
        return [*where, "--parent", str(os.getpid()), *peers, *tls]


def _failed(order: Examine, why: str) -> Examined:
    return Examined(number=order.number, figures={}, failed=why)
