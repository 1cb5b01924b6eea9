# SPDX-License-Identifier: Apache-2.0
"""Screen of `trainmover run`: the script's lines, incidents as they happen, nothing else."""

import asyncio
import errno
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from trainmover.agent.decide import STREAM_BITS
from trainmover.cli.console import Terminal
from trainmover.cli.output import json_line
from trainmover.cli.report.goodput import Goodput, goodput
from trainmover.cli.report.reading import past_of
from trainmover.cli.report.report import write
from trainmover.cli.report.text import headline
from trainmover.cli.run.footer import Footer, columns_of
from trainmover.cli.stream import stream, write_to
from trainmover.cli.watch.progress import line
from trainmover.communicators import described
from trainmover.controller.state import Job, Kind
from trainmover.errors import UserError
from trainmover.launch.controller.hosting import RunHandle, RunResult
from trainmover.launch.runs import Run
from trainmover.outlet import Outlet
from trainmover.protocol.messages import JobSpec
from trainmover.server.http.stream import entry
from trainmover.server.length import length
from trainmover.server.run import Server
from trainmover.server.view.notices import Happened, Notice, Printed
from trainmover.server.view.redundancy import redundancy_json
from trainmover.server.view.waiting import stop_text
from trainmover.version import VERSION

LOOK_S = 0.5


class Screen:
    """Screen for people: a worker's stdout goes to stdout, its stderr and our own words to stderr.

    Nothing of the run waits for who reads that, or ends because it cannot be written: see `Outlet`.
    """

    FOOTED = True
    """Whether a line at the foot says how far the run is."""

    def __init__(self) -> None:
        self._outlet: Outlet[TextIO] = Outlet(write_to, self._failed)
        self._stdout, self._stderr = (stream(self._outlet, to) for to in (sys.stdout, sys.stderr))
        self._console = Terminal(file=self._stderr, soft_wrap=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._run: Run | None = None
        self._footer: Footer | None = None

    def ready(self, handle: RunHandle, returned: bool) -> None:
        """returned: a controller before this one has said all that, and how long there was none
        comes as a notice."""
        self._loop, self._server = asyncio.get_running_loop(), handle.server
        self._run = handle.run
        if handle.run.progress and self.FOOTED:
            columns = columns_of(sys.stderr)
            self._footer = Footer(self._stderr, columns, self._progress, time.monotonic)
            self._look_again()
        if not returned:
            self._begin(handle, handle.server.spec)

    def _begin(self, handle: RunHandle, spec: JobSpec) -> None:
        machines = f"{spec.machines} machine{'s' * (spec.machines > 1)} x {spec.nproc}"
        spare = spec.standbys
        standbys = f" + {spare} standby{'s' * (spare > 1)}" if spare else ""
        comm = f"groups on {described(spec.comm)}"
        page = f"{handle.run.api_url} (trainmover dashboard opens it)"
        where = f"{machines}{standbys}  {comm}  {page}"
        self._say(f"trainmover {VERSION}  run {handle.run.run_id}  {where}", style="dim")
        if spec.log.log_dir is not None:
            self._say(f"logs: {spec.log.log_dir}/{handle.run.run_id}", style="dim")

    def notice(self, notice: Notice, handle: RunHandle) -> None:
        match notice:
            case Printed(rank=rank, stream=stream, text=text):
                to = self._stderr if stream == "stderr" else self._stdout
                prefix = _prefix(handle, rank, stream)
                with self._aside():
                    to.write("".join(f"{prefix}{line}\n" for line in _lines(text)))
            case Happened(loud=True, text=text, good=good):
                self._say(text, style="green" if good else "bold yellow")
        if self._footer is not None:
            self._footer.look()

    def _look_again(self) -> None:
        """Show also a job of which nothing is heard as it is."""
        if self._footer is not None and self._loop is not None:
            self._footer.look()
            self._loop.call_later(LOOK_S, self._look_again)

    def _progress(self, columns: int) -> str:
        """Return how far the job is; "" before its first step, or where that would be all there is
        to say and nobody looks on."""
        assert self._server is not None
        job, progress = self._server.job, self._server.progress
        whole = length(job)
        if not progress.step or (whole is None and not columns):
            return ""
        doing = pause_text(job, self._server.waiting(), self._server.now())
        alarm = "no standby" if job.spec.standbys and redundancy_json(job)["alarm"] else ""
        return line(
            progress.step, whole, progress.loss, progress.step_ms, doing, columns, alarm=alarm
        )

    def _aside(self) -> AbstractContextManager[None]:
        return nullcontext() if self._footer is None else self._footer.aside()

    async def ended(self, result: RunResult) -> None:
        """Return once all is written, or it is known that it cannot be."""
        if self._footer is not None:
            self._footer.close()
        self._say_end(result, self._account(result))
        written = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._outlet.then(lambda: _tell(loop, written.set))
        await written.wait()

    def _say_end(self, result: RunResult, account: Goodput | None) -> None:
        if account is not None:
            self._say(headline(account), style="dim")
        text = result.text.rstrip()
        if text:
            self._say(f"trainmover: {text}", style="bold red" if result.code else None)

    def _account(self, result: RunResult) -> Goodput | None:
        """Return where the time went; None if no step was made. Writes the report that was asked
        for."""
        run = self._run
        if run is None or not result.job.epoch:
            return None
        try:
            account = goodput([past_of(Path(run.journal), result.job)])
            if run.report:
                write(Path(run.report), account)
        except UserError as error:  # The result stands.
            self._say(str(error), style="bold yellow")
            return None
        return account if account.steps else None

    def _say(self, text: str, style: str | None) -> None:
        with self._aside():
            self._console.print(text, style=style)

    def _failed(self, to: TextIO, error: OSError) -> None:
        """Called by the outlet's thread."""
        name = "stderr" if to is sys.stderr else "stdout"
        text = (
            f"{name} can no longer be written ({error.strerror}): the job goes on; "
            "what happens is shown by trainmover events"
        )
        loud = error.errno != errno.EPIPE  # `| head` is wanted so.
        if self._loop is not None and self._server is not None:
            _tell(self._loop, partial(self._server.note, text, loud=loud))


def pause_text(job: Job, waiting: list[dict[str, Any]], now_us: int) -> str:
    """Return why no step is committed now; "" if the job trains."""
    change = job.change
    if change is not None and change.missing:
        left_s = max(0, change.until_us - now_us) / 1e6
        return f"waiting for a machine, the job ends in {left_s:.0f} s"
    if change is not None and change.kind is Kind.RECOVERY:
        return "recovering"
    return stop_text(waiting)


def _tell(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Call the loop from another thread; do nothing if it is closed: the job is over."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(act)


def _prefix(handle: RunHandle, rank: int, stream: str) -> str:
    """Return torchrun's prefix of lines that go to a file too (--tee). rank -1: they say whose they
    are."""
    spec = handle.server.spec
    teed = rank >= 0 and spec.log.tee.get(rank % spec.nproc, 0) & STREAM_BITS[stream]
    return f"[{handle.run.role}{rank}]:" if teed else ""


def _lines(text: str) -> list[str]:
    """Split at newlines only: a progress bar's carriage returns stay what they are."""
    return text.removesuffix("\n").split("\n")


class JsonScreen(Screen):
    """Screen for programs: one JSON object a line on stdout."""

    FOOTED = False

    def _begin(self, handle: RunHandle, spec: JobSpec) -> None:
        run = handle.run
        known = {"run_id": run.run_id, "api_url": run.api_url, "token_file": run.token_file}
        self._put("started", **known, **({"tls_ca": run.tls.ca} if run.tls else {}))

    def notice(self, notice: Notice, handle: RunHandle) -> None:
        match notice:
            case Printed(rank=rank, stream=stream, text=text):
                self._put("output", rank=rank, stream=stream, text=text)
            case Happened():
                self._put("event", loud=notice.loud, **entry(notice))

    def _say_end(self, result: RunResult, account: Goodput | None) -> None:
        spent = {} if account is None else {"goodput": account.share, "seconds": account.parts}
        self._put("end", code=result.code, text=result.text, **spent)

    def _put(self, what: str, **values: Any) -> None:
        self._stdout.write(json_line({"what": what, **values}) + "\n")
