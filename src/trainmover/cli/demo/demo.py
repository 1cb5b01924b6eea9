# SPDX-License-Identifier: Apache-2.0
"""`trainmover demo`: train, move a machine, kill a machine, and show that nothing changed.

A small GPT is trained twice on this computer, by four machines of one rank each. In the first run
m2 is moved to the standby; when that has made m2 a warm standby, the machine that holds rank 0 is
killed, agent and worker. The second run is left alone. Then every committed loss of every rank and
the final state of the two are compared.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import trainmover
from trainmover.cli.console import Terminal
from trainmover.cli.demo import pictures
from trainmover.cli.demo.recording import Recording, Span, differences, missing, report
from trainmover.cli.demo.screen import DemoScreen
from trainmover.cli.output import say_json
from trainmover.cli.stream import stream, write_to
from trainmover.controller.state import Job, Kind, MachineState, Outcome
from trainmover.errors import JobFailed, UserError
from trainmover.ids import MachineId
from trainmover.launch.fork_server import ForkServerProcess
from trainmover.launch.run_job import RunHandle, RunOptions, run_job
from trainmover.outlet import Outlet
from trainmover.protocol.messages import LogSpec, Row
from trainmover.server.view.notices import Happened, Notice, Printed, Stepped

MACHINES = 4
MOVED = "m2"
STEPS_MIN = 80
DATA_BYTES = 10_000


def main(options: argparse.Namespace) -> int:
    """Exit status: 0 if the disturbed run equals the undisturbed one."""
    _check(options)
    _make(options.out)
    outlet: Outlet[TextIO] = Outlet(write_to, lambda to, error: None)  # The report has it all.
    shown = stream(outlet, sys.stderr if options.json else sys.stdout)
    console = Terminal(file=shown, soft_wrap=True)
    begun = time.monotonic()
    with ForkServerProcess() as fork_server:
        disturbed = _run(options, console, fork_server, Drill(options.steps))
        undisturbed = _run(options, console, fork_server, None)
    faults = differences(disturbed, undisturbed) + missing(disturbed.job)
    result = report(disturbed, undisturbed, faults)
    result["seconds"] = round(time.monotonic() - begun, 1)
    left = _leave(options.out, result, disturbed, undisturbed, console)
    _say_verdict(console, result, left)
    outlet.close()
    if options.json:
        say_json(result)
    return 1 if faults else 0


def script() -> Path:
    """Return the example that is trained: in a wheel it lies in the package, in a checkout beside
    src."""
    package = Path(trainmover.__file__).parent
    found = [package / "examples", package.parents[1] / "examples"]
    return next(path for folder in found if (path := folder / "gpt.py").is_file())


def _check(options: argparse.Namespace) -> None:
    """Raises UserError for what cannot work."""
    if options.steps < STEPS_MIN:
        raise UserError(
            f"--steps {options.steps} is too short a run.",
            means="It would be over before a standby is warm; nothing was started.",
            do=f"Give --steps {STEPS_MIN} or more.",
        )
    if options.data and (not options.data.is_file() or options.data.stat().st_size < DATA_BYTES):
        raise UserError(
            f"{options.data} is not a file of at least {DATA_BYTES} bytes.",
            means="There is nothing to train on; nothing was started.",
            do="Give --data a longer text, or leave it away.",
        )


def _make(out: Path) -> None:
    """Make the folder of the results, before two runs are spent on them. Raises UserError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The folder {out} cannot be made: {error.strerror}.",
            means="The results would have no place; nothing was started.",
            do="Give --out a place that can be written.",
        ) from error


# --- running --------------------------------------------------------------------------------------


class Drill:
    """Orders the move and the kill, each as soon as its step is reached and a standby is warm; the
    kill in the middle of a step, where most losses come."""

    def __init__(self, steps: int) -> None:
        self._move_at, self._kill_at = steps // 5, steps // 2
        self._moved = self._killed = False

    def look(self, job: Job, step: int, handle: RunHandle) -> None:
        """Act if it is time. step: newest one of rank 0."""
        if job.change is not None or not job.all_recorded or not _warm(job):
            return
        if not self._moved and step >= self._move_at:
            self._moved = True
            handle.move(MOVED)
        elif not self._killed and step >= self._kill_at and _is_done(job, Kind.MOVE):
            self._killed = True
            half_s = (handle.server.progress.step_ms or 0.0) / 2000
            asyncio.get_running_loop().call_later(half_s, handle.kill, job.seats[0])


def _warm(job: Job) -> bool:
    return any(machine.state is MachineState.WARM for machine in job.machines.values())


def _is_done(job: Job, kind: Kind) -> bool:
    return any(i.kind is kind and i.outcome is not Outcome.OPEN for i in job.incidents)


class Watch:
    """Follows one run: shows it, keeps the machines' states over time, lets the drill act."""

    def __init__(self, screen: DemoScreen, drill: Drill | None) -> None:
        self._screen = screen
        self._drill = drill
        self._step = 0
        self._since: dict[MachineId, tuple[str, int]] = {}
        self.spans: list[Span] = []
        self.errors: list[str] = []

    def __call__(self, notice: Notice, handle: RunHandle) -> None:
        match notice:
            case Stepped(rank=0, rows=rows) if rows:
                for row in rows:
                    self._stepped(row, handle.server.progress.step_ms)
            case Happened():
                self._happened(notice)
            case Printed(stream="stderr", text=text):
                self.errors.append(text)
            case _:
                return
        if self._drill is not None:
            self._drill.look(handle.server.job, self._step, handle)

    def _stepped(self, row: Row, step_ms: float | None) -> None:
        """Show it once: who takes over rank 0 may report a step that was reported before."""
        if row.step > self._step:
            self._step = row.step
            self._screen.step(row.step, row.values.get("loss"), step_ms)

    def _happened(self, happened: Happened) -> None:
        now = {m.id: str(m.state) for m in happened.after.machines.values()}
        for machine in self._since.keys() | now.keys():
            self._note(machine, now.get(machine, ""), happened.at_us)
        if happened.loud and happened.text:
            self._screen.say(happened.text)

    def _note(self, machine: MachineId, state: str, at_us: int) -> None:
        was, since = self._since.get(machine, ("", at_us))
        if state == was:
            return
        if was:
            self.spans.append(Span(machine, was, since, at_us))
        self._since[machine] = (state, at_us)

    def close(self) -> None:
        """End every span that is still open."""
        for machine in list(self._since):
            self._note(machine, "", time.time_ns() // 1000)


def _run(
    options: argparse.Namespace,
    console: Terminal,
    fork_server: ForkServerProcess,
    drill: Drill | None,
) -> Recording:
    """Run the example once. Raises JobFailed if it does not end well."""
    title = "disturbed" if drill else "undisturbed"
    arguments = ["--steps", str(options.steps), "--log-every", str(options.steps)]
    arguments += ["--data", str(options.data.resolve())] if options.data else []
    with tempfile.TemporaryDirectory(prefix="trainmover-demo-") as folder:
        journal = Path(folder) / "journal.sqlite"
        run = RunOptions(
            argv=[str(script()), *arguments],
            machines=MACHINES,
            standbys=1 if drill else 0,
            journal=journal,
            log=LogSpec(show=None),
        )
        with DemoScreen(console, title, options.steps) as screen:
            watch = Watch(screen, drill)
            result = run_job(run, on_change=watch, fork_server=fork_server)
        watch.close()
        if result.code != 0:
            raise JobFailed(
                f"The {title} run ended with status {result.code}. {result.text}".strip(),
                means="".join(watch.errors[-20:]).rstrip() or "There is nothing to compare.",
                do="Run it alone: trainmover run --machines 4 --standbys 1 examples/gpt.py",
                code=result.code,
            )
        return Recording.of(journal, result.job, watch.spans)


# --- what is left behind --------------------------------------------------------------------------


def _leave(
    out: Path,
    result: dict[str, Any],
    disturbed: Recording,
    undisturbed: Recording,
    console: Terminal,
) -> list[Path]:
    """Write report and pictures; the paths written."""
    out.mkdir(parents=True, exist_ok=True)
    left = [out / "report.json"]
    left[0].write_text(json.dumps(result, indent=2) + "\n")
    draw: list[tuple[str, str, Callable[[Path], None]]] = [
        (
            "losses.png",
            "losses of both runs, one line over the other, and their difference",
            lambda path: pictures.losses(path, disturbed, undisturbed),
        ),
        (
            "incidents.png",
            "what each machine did over time, and the phases of the move and of the loss",
            lambda path: pictures.incidents(path, disturbed),
        ),
    ]
    try:
        for name, what, picture in draw:
            picture(out / name)
            left.append(out / name)
            console.print(f"drawn: {out / name}: {what}", style="dim")
    except UserError as error:
        console.print(str(error), style="yellow")
    return left


def _say_verdict(console: Terminal, result: dict[str, Any], left: list[Path]) -> None:
    console.print()
    if result["bitwise_equal"]:
        losses, of = result["losses_compared"], f"{result['steps']} steps x {result['ranks']} ranks"
        equal = f"EQUAL, bit for bit: {losses} losses ({of}) and every rank's final state."
        console.print(equal, style="bold green")
    for fault in result["faults"]:
        console.print(f"NOT AS PROMISED: {fault}.", style="bold red")
    for incident in result["incidents"]:
        if incident["downtime_ms"] is not None:
            who = f"  {incident['kind']:<9}{incident['machine']} -> {incident['joiner']}"
            step = f"a step takes {result['step_ms_median']:.0f} ms"
            console.print(f"{who}  downtime {incident['downtime_ms']:.0f} ms; {step}")
    written = ", ".join(map(str, left))
    console.print(f"{result['seconds']} s; left in {written}", style="dim", soft_wrap=True)
