"""What tests of agent, server, launch and cli share: a fake worker's command, waiting for facts."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from trainmover.launch.run_job import RunHandle, RunOptions, RunResult, run_job
from trainmover.launch.runs import process_started
from trainmover.server.view.notices import Happened, Notice, Printed, Stepped

FAKE = (sys.executable, "-u", str(Path(__file__).with_name("fake_worker.py")))
SRC = str(Path(__file__).resolve().parents[1] / "src")
WAIT_S = 30.0


def environment() -> dict[str, str]:
    """For child processes: this checkout, wherever it is."""
    return os.environ | {"PYTHONPATH": SRC}


def until(true: Callable[[], object], what: str | Callable[[], str]) -> None:
    """Wait for a fact of another process."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, f"never happened: {what() if callable(what) else what}"
        time.sleep(0.005)


def words_of(process: psutil.Process) -> set[str]:
    """Of its command line; none if it has died since it was listed."""
    try:
        return set(" ".join(process.cmdline()).split())
    except psutil.NoSuchProcess:  # A zombie too.
        return set()


def alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    return process_started(pid) is not None


class Story:
    """Runs a job with fake workers and does something when a sentence is heard."""

    def __init__(self, tmp_path: Path, behave: str = "good", **options: object) -> None:
        self.finish = tmp_path / "finish"
        self.journal = tmp_path / "journal.sqlite"
        self.heard: list[str] = []
        self.printed: list[Printed] = []
        self.stepped: list[Stepped] = []
        self.answers: list[object] = []
        self.handle: RunHandle | None = None
        self._cues: list[tuple[str, Callable[[RunHandle], object]]] = []
        defaults: dict[str, object] = {"machines": 2, "standbys": 1, "journal": self.journal}
        self.options = RunOptions(
            argv=["5", str(self.finish), behave],
            worker=FAKE,
            run_dir=tmp_path / "run",
            **(defaults | options),  # type: ignore[arg-type]
        )

    def when(self, text: str, do: Callable[[RunHandle], object]) -> "Story":
        """Once, when a sentence contains `text`; cues are taken in the order they were given."""
        self._cues.append((text, do))
        return self

    def when_warm(self, do: Callable[[RunHandle], object]) -> "Story":
        """Once the standby m3 is warm and the records of all ranks are safe."""
        return self.when_safe("m3 is warm", do)

    def when_safe(self, text: str, do: Callable[[RunHandle], object]) -> "Story":
        """Once a sentence contains `text` and the records of all ranks are safe."""

        def safely(handle: RunHandle) -> None:
            if handle.server.progress.step < 5 or len(handle.server.progress.ranks) < 2:
                asyncio.get_running_loop().call_later(0.01, safely, handle)
            else:
                do(handle)

        return self.when(text, safely)

    def then_finish(self, text: str) -> "Story":
        return self.when(text, lambda _: self.finish.touch())

    def run(self) -> RunResult:
        return run_job(self.options, on_change=self._notice)

    def _notice(self, notice: Notice, handle: RunHandle) -> None:
        self.handle = handle
        match notice:
            case Printed():
                self.printed.append(notice)
            case Stepped():
                self.stepped.append(notice)
            case Happened(text=text):
                self.heard.append(text)
                if self._cues and self._cues[0][0] in text:
                    self._cues.pop(0)[1](handle)

    def lines(self) -> str:
        return "".join(printed.text for printed in self.printed)
