# SPDX-License-Identifier: Apache-2.0
"""`trainmover top`, or `status --watch`: a run as it is now, again and again, in the same place.

Where nobody looks on, a line whenever the run has got further.
"""

import argparse
import io
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from trainmover.cli.client import Client
from trainmover.cli.console import Terminal
from trainmover.cli.options import which_run
from trainmover.cli.output import json_line, say
from trainmover.cli.watch.ending import EndWatcher
from trainmover.cli.watch.progress import line
from trainmover.cli.watch.status import doing, pause_text, show
from trainmover.errors import PeerLost
from trainmover.escaping import one_line

EVENTS_SHOWN = 5
LEAST_ROWS = 3
"""Machines that are shown, however low the terminal is."""
_UP_AND_CLEAR = "\x1b[{}F\x1b[J"


def main(options: argparse.Namespace) -> int:
    """0 when the run has ended, or at Ctrl-C."""
    return follow(Client(which_run(options)), options.every, as_json=options.json)


def follow(client: Client, every_s: float, *, as_json: bool = False) -> int:
    """Show the run until it ends."""
    live = sys.stdout.isatty() and not as_json
    shown: Callable[[dict[str, Any], list[str]], str]
    shown = Frames().frame if live else Lines(as_json=as_json).line
    watcher = EndWatcher(client)
    try:
        for status, said in _looks(client, max(0.1, every_s)):
            sys.stdout.write(shown(status, said))
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except PeerLost:
        say(watcher.text(), to=sys.stderr)
    return 0


def _looks(client: Client, every_s: float) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield what is there, and the newest sentences."""
    after, said = 0, list[str]()
    while True:
        status = client.status()
        for event in client.events(after):
            after = event["seq"]
            said += [event["text"]] if event["text"] else []
        said = said[-EVENTS_SHOWN:]
        yield status, said
        time.sleep(every_s)


class Frames:
    """Frames for a terminal, each drawn over the one before."""

    def __init__(self) -> None:
        self._height = 0

    def frame(self, status: dict[str, Any], said: list[str]) -> str:
        """Return what to write to have the frame there."""
        columns, height = shutil.get_terminal_size()
        drawn = frame(status, said, columns, height)
        up = _UP_AND_CLEAR.format(self._height) if self._height else ""
        self._height = drawn.count("\n")
        return up + drawn


def frame(status: dict[str, Any], said: list[str], columns: int, height: int) -> str:
    """Return one picture, that fits: machines in trouble first, as many as there is room for."""
    room = max(3, height - 1)
    else_lines = len(_drawn(status, said, columns, 0))
    rows = max(LEAST_ROWS, room - else_lines)
    if rows < len(status["machines"]):
        rows = max(LEAST_ROWS, rows - 1)
    return "".join(f"{text}\n" for text in _drawn(status, said, columns, rows)[:room])


def _drawn(status: dict[str, Any], said: list[str], columns: int, rows: int) -> list[str]:
    """Draw all lines, with so many machines."""
    out = io.StringIO()
    console = Terminal(file=out, width=columns, force_terminal=True)
    console.print(progress(status, columns), no_wrap=True, crop=True)
    show(status, console, rows)
    if said:
        console.print()
    for text in said:
        first = one_line(text.partition("\n")[0])
        console.print(first, style="dim", no_wrap=True, overflow="ellipsis")
    return out.getvalue().splitlines()


def progress(status: dict[str, Any], columns: int = 0) -> str:
    """Return how far the run is."""
    return line(
        status["step"],
        status["length"],
        status["loss"],
        status["step_ms"],
        pause_text(status),
        columns,
    )


class Lines:
    """Lines for a file: one line for each look at which the run was further, or did something
    else."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._before: tuple[Any, ...] = ()

    def line(self, status: dict[str, Any], said: list[str]) -> str:
        now = (status["step"], doing(status), _newest(status))
        if now == self._before:
            return ""
        self._before = now
        return (json_line(status) if self._as_json else one_line(progress(status))) + "\n"


def _newest(status: dict[str, Any]) -> int:
    """Number of the newest incident; 0: there was none."""
    incidents = status["incidents"]
    return incidents[-1]["number"] if incidents else 0
