# SPDX-License-Identifier: Apache-2.0
"""Where the lines go that this machine's workers print: log files, the screen, last words."""

from collections.abc import Callable
from pathlib import Path

from trainmover.agent.decide import Place, shown_as, written
from trainmover.agent.workers.output import LogFiles, ScreenBatch
from trainmover.ids import MachineId, Rank
from trainmover.protocol.messages import JobSpec, Output, Unwritten

LAST_WORDS_BYTES = 4096
"""Of stderr that was not to be shown, kept in case the worker ends by a fault of its own."""
NO_RANK = Rank(-1)
"""Output of a worker that is no rank yet, or not one that is shown; the lines say whose."""


class Printing:
    """tell, clogged: of the link to the controller."""

    def __init__(
        self,
        machine: MachineId,
        tell: Callable[[Output | Unwritten], None],
        clogged: Callable[[], bool],
    ) -> None:
        self._machine = machine
        self._tell = tell
        self._screen = ScreenBatch(self._show, clogged)
        self._logs = LogFiles(self._unwritten_log)
        self._unshown: dict[int, bytes] = {}

    def lines(
        self, spec: JobSpec, place: Place, attempt: int, local_rank: int, stream: str, lines: bytes
    ) -> None:
        """Whole lines of one worker, in the attempt and at the place in which it printed them."""
        log = spec.log
        if written(log, local_rank, stream):
            assert log.log_dir is not None
            folder = Path(log.log_dir) / spec.run_id / f"attempt_{attempt}" / self._machine
            self._logs.append(folder / str(local_rank) / f"{stream}.log", lines)
        rank = shown_as(place, log, spec.nproc, local_rank, stream)
        if rank is not None:
            self._screen.add(rank, stream, lines)
        elif stream == "stderr":
            kept = self._unshown.get(local_rank, b"") + lines
            self._unshown[local_rank] = kept[-LAST_WORDS_BYTES:]

    def ended(self, local_rank: int, *, show: bool) -> None:
        """A worker prints no more. show: what it said last, if that was not shown."""
        last_words = self._unshown.pop(local_rank, b"")
        self._screen.flush()
        if last_words and show:
            name = f"{self._machine} worker {local_rank}"
            said = last_words.decode(errors="replace").splitlines()
            self._show(NO_RANK, "stderr", "".join(f"{name}: {line}\n" for line in said))

    def flush(self) -> None:
        self._screen.flush()

    def close(self) -> None:
        """Return when everything is handed on and written."""
        self._screen.flush()
        self._logs.close()

    def _show(self, rank: Rank, stream: str, text: str) -> None:
        self._tell(Output(rank=rank, stream=stream, text=text))

    def _unwritten_log(self, path: Path, why: str) -> None:
        self._tell(Unwritten(path=str(path), why=why))
