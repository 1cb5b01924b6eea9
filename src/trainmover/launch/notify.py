# SPDX-License-Identifier: Apache-2.0
"""Tells somebody who does not look: `trainmover run --notify-cmd`.

    loss        a rank was lost, or its links: the job recovers
    recovered   the first step behind it is through
    waiting     no machine is left for a lost one, and the job waits for one
    no-standby  the last standby that was ready is none any more
    ended       the job is over

`notifications` decides, purely; `Notifier` runs the command for each, beside the job. The command
is the shell's. It finds TRAINMOVER_EVENT, TRAINMOVER_TEXT and TRAINMOVER_RUN in its environment,
and one line of JSON on its standard input. One runs at a time, each for so long at most; whatever
becomes of it, the job goes on.
"""

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from trainmover.controller.policies.plans.standbys import ready
from trainmover.controller.state import Incident, Job, Kind, Outcome, Phase
from trainmover.server.view.redundancy import redundancy_json, waits

LIMIT_S = 30.0
CLOSE_S = 10.0
"""For what is still to be told when the run is over."""
WAITING_MAX = 100


class Notification(NamedTuple):
    """Event, and a sentence for people. status: of the run, if it has ended"""

    event: str
    text: str
    status: int | None = None


def notifications(before: Job, after: Job, text: str) -> list[Notification]:
    """Return what a change of the job is worth. text: what the screen says of it"""
    if before is after:
        return []
    return [*_of_incidents(before, after, text), *_of_machines(before, after), *_end(before, after)]


def _of_incidents(before: Job, after: Job, text: str) -> Iterator[Notification]:
    known = {one.number: one for one in before.incidents}
    for incident in after.incidents:
        if incident.kind is Kind.RECOVERY and incident is not known.get(incident.number):
            yield from _of_incident(known.get(incident.number), incident, text)


def _of_incident(was: Incident | None, incident: Incident, text: str) -> Iterator[Notification]:
    if was is None:
        yield Notification("loss", text or incident.cause)
    elif was.outcome is Outcome.OPEN and incident.outcome is Outcome.DONE:
        yield Notification("recovered", text or incident.cause)


def _of_machines(before: Job, after: Job) -> Iterator[Notification]:
    if waits(after) and not waits(before):
        yield Notification("waiting", "no machine is left for a lost one: the job waits for one")
    if after.phase is Phase.RUNNING and ready(before) and not ready(after):
        yield Notification("no-standby", redundancy_json(after)["text"])


def _end(before: Job, after: Job) -> Iterator[Notification]:
    if after.code is not None and before.code is None:
        text = after.ended_because.partition("\n")[0] or "the script has ended"
        yield Notification("ended", text, after.code)


class Notifier:
    """Thread that runs the command of one run, for one notification after the other.

    warn  says a sentence on the run's screen; called in the notifier's thread
    """

    def __init__(self, command: str, run_id: str, warn: Callable[[str], None]) -> None:
        self._command, self._run_id, self._warn = command, run_id, warn
        self._waiting: queue.Queue[Notification | None] = queue.Queue(WAITING_MAX)
        self._has_warned = False
        self._thread = threading.Thread(target=self._work, name="tm-notify", daemon=True)
        self._thread.start()

    def tell(self, notification: Notification) -> None:
        """Have the command run for it; it is dropped if a hundred wait."""
        try:
            self._waiting.put_nowait(notification)
        except queue.Full:
            self._failed(f"{WAITING_MAX} notifications wait for it, so one is dropped")

    def close(self) -> None:
        """Tell what is still to be told, for a while, and end."""
        try:
            self._waiting.put(None, timeout=CLOSE_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while (notification := self._waiting.get()) is not None:
            self._run(notification)

    def _run(self, notification: Notification) -> None:
        event, text, status = notification
        said = {"run_id": self._run_id, "event": event, "text": text, "status": status}
        # Not TRAINMOVER_RUN_ID: by that the processes of a run are known, which end with it.
        names = {"EVENT": event, "TEXT": text, "RUN": self._run_id}
        environment = {f"TRAINMOVER_{name}": value for name, value in names.items()}
        try:
            process = subprocess.Popen(
                self._command,
                shell=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                env=os.environ | environment,
                start_new_session=True,
            )
        except OSError as error:
            self._failed(f"it could not be run: {error.strerror}")
            return
        try:
            process.communicate(json.dumps(said) + "\n", timeout=LIMIT_S)
            if process.returncode:
                self._failed(f"it ended with status {process.returncode}")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # With what the shell has started.
            process.communicate()
            self._failed(f"it did not end within {LIMIT_S:.0f} s")

    def _failed(self, why: str) -> None:
        """Say so once: the next ones are tried all the same."""
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"--notify-cmd: {why}; the job goes on, and the next one is tried")
