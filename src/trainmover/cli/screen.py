"""What `trainmover run` shows: the script's lines, incidents as they happen, nothing else."""

import json
import sys
from typing import Any

from rich.console import Console

from trainmover.launch.hosting import RunHandle, RunResult
from trainmover.protocol.messages import JobSpec
from trainmover.server.api import told_json
from trainmover.server.notices import Happened, Notice, Printed
from trainmover.version import VERSION


class Screen:
    """For people: a worker's stdout goes to stdout, its stderr and our own words to stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
        self._deaf = False

    def ready(self, handle: RunHandle, returned: bool) -> None:
        """returned: a controller before this one has said all that, and how long there was none
        comes as a notice."""
        if not returned:
            self._begin(handle, handle.server.spec)

    def _begin(self, handle: RunHandle, spec: JobSpec) -> None:
        machines = f"{spec.machines} machine{'s' * (spec.machines > 1)} x {spec.nproc}"
        spare = spec.standbys
        standbys = f" + {spare} standby{'s' * (spare > 1)}" if spare else ""
        where = f"{machines}{standbys}  {handle.run.api_url}"
        self._say(f"trainmover {VERSION}  run {handle.run.run_id}  {where}", style="dim")
        if spec.log.log_dir is not None:
            self._say(f"logs: {spec.log.log_dir}/{handle.run.run_id}", style="dim")

    def notice(self, notice: Notice, handle: RunHandle) -> None:
        match notice:
            case Printed(rank=rank, stream=stream, text=text):
                to = sys.stderr if stream == "stderr" else sys.stdout
                prefix = f"[rank{rank}]: " if rank >= 0 else ""
                self._write("".join(f"{prefix}{line}\n" for line in _lines(text)), to)
            case Happened(loud=True, text=text):
                self._say(text, style="bold yellow")

    def ended(self, result: RunResult) -> None:
        text = result.text.rstrip()
        if text:
            self._say(f"trainmover: {text}", style="bold red" if result.code else None)

    def _write(self, text: str, to: Any) -> None:
        """A reader that has gone (`| head`) is no reason to stop training."""
        if self._deaf:
            return
        try:
            to.write(text)
            to.flush()
        except BrokenPipeError:
            self._deaf = True

    def _say(self, text: str, style: str | None) -> None:
        if self._deaf:
            return
        try:
            self._console.print(text, style=style)
        except BrokenPipeError:
            self._deaf = True


def _lines(text: str) -> list[str]:
    """Split at newlines only: a progress bar's carriage returns stay what they are."""
    return text.removesuffix("\n").split("\n")


class JsonScreen(Screen):
    """For programs: one JSON object a line on stdout."""

    def _begin(self, handle: RunHandle, spec: JobSpec) -> None:
        run = handle.run
        known = {"run_id": run.run_id, "api_url": run.api_url, "token_file": run.token_file}
        self._put("started", **known, **({"tls_ca": run.tls.ca} if run.tls else {}))

    def notice(self, notice: Notice, handle: RunHandle) -> None:
        match notice:
            case Printed(rank=rank, stream=stream, text=text):
                self._put("output", rank=rank, stream=stream, text=text)
            case Happened():
                self._put("event", loud=notice.loud, **told_json(notice))

    def ended(self, result: RunResult) -> None:
        self._put("end", code=result.code, text=result.text)

    def _put(self, what: str, **values: Any) -> None:
        self._write(json.dumps({"what": what, **values}) + "\n", sys.stdout)
