"""`trainmover run` with fake workers, as a process of its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
from host_tools import FAKE, alive, environment, until

from trainmover.cli.client import Client
from trainmover.errors import PeerLost, UserError
from trainmover.launch.runs import find_run


class Running:
    """A `trainmover run` with fake workers, from its start to its end.

    under           what it is started by, as nohup
    stdout, stderr  where to; pipes that `ended` reads, if nothing else is given
    """

    def __init__(
        self,
        tmp_path: Path,
        *flags: str,
        behave: str = "good",
        under: Sequence[str] = (),
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> None:
        self.finish = tmp_path / "finish"
        self.tmp = tmp_path / "tmp"
        self.tmp.mkdir()
        (tmp_path / "5").write_text("")
        command = [*under, sys.executable, "-m", "trainmover", "run"]
        command += ["--machines", "2", "--standbys", "1"]
        command += ["--worker-program", json.dumps(FAKE), *flags, "5", str(self.finish), behave]
        self.process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, text=True, cwd=tmp_path,
            env=environment() | {"TMPDIR": str(self.tmp)}, start_new_session=True,
            preexec_fn=_hears_sighup,
        )  # fmt: skip
        self.family: list[int] = []

    def until_warm(self) -> None:
        def warm() -> bool:
            assert self.process.poll() is None, self.ended()
            return "m3 is warm" in events()

        until(warm, lambda: f"m3 is warm; what was said:\n{events()}")
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.family = [self.process.pid, *(child.pid for child in children)]

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def _hears_sighup() -> None:
    """Also where the tests themselves run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def events() -> str:
    """All sentences of the run so far; "" when it cannot be asked."""
    try:
        return "\n".join(event["text"] for event in Client(find_run()).events())
    except (UserError, PeerLost):
        return ""


def until_said(text: str) -> None:
    """Wait for a sentence of the run."""
    until(lambda: text in events(), lambda: f"{text!r}; what was said:\n{events()}")


def nothing_left(running: Running, home: Path) -> bool:
    """No process, no directory, no temporary file."""
    assert running.family
    gone = not any(alive(pid) for pid in running.family)
    return gone and list((home / "runs").iterdir()) == [] and list(running.tmp.iterdir()) == []
