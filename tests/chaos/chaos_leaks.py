"""What a run must not leave behind: processes, memory, files, ports."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
from chaos_run import Running


class Traces:
    """Of one run. `note` now and then while it lives; `left` when it is over."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._seen: dict[int, psutil.Process] = {}

    def note(self) -> None:
        """A process object knows when its process began: a pid that is used again is not it."""
        for process in self._running.family():
            self._seen[process.pid] = process

    def left(self, *, own_network: bool) -> list[str]:
        """Everything that is still there."""
        found = [*self._processes(), *self._shared_memory(), *self._files()]
        return [*found, *listeners()] if own_network else found

    def _processes(self) -> Iterator[str]:
        for process in self._seen.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.is_running():
                    yield f"process {process.pid} ({process.status()}): {process.cmdline()}"

    def _shared_memory(self) -> Iterator[str]:
        for path in Path("/dev/shm").iterdir():
            if any(str(pid) in path.name.replace("-", "_").split("_") for pid in self._seen):
                yield f"shared memory {path}"

    def _files(self) -> Iterator[str]:
        expected = {"journal.sqlite", "output"}
        for path in self._running.folder.iterdir():
            if path.name not in expected:
                yield f"file {path}"


def listeners() -> Iterator[str]:
    """In this network; nobody else's, if it is of our own."""
    for link in psutil.net_connections("tcp"):
        if link.status == psutil.CONN_LISTEN:
            yield f"port {link.laddr.port}"
