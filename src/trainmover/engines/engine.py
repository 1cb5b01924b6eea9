# SPDX-License-Identifier: Apache-2.0
"""The contract of an engine: start machines by name, end them, and tell what there is.

An engine keeps nothing that it could not find out again: it is asked for all that it runs (`look`),
and whoever asks compares that with what is wanted. So an adapter may die at any moment.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from trainmover.controller.policies.capacity.known import Denial, NoticeKind
from trainmover.launch.runs import Run


class State(StrEnum):
    """How far a machine is."""

    QUEUED = "queued"
    RUNNING = "running"


@dataclass(frozen=True)
class Notice:
    """A machine will be taken away. left_s: of no meaning for a drain. why: in its words."""

    kind: NoticeKind
    left_s: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Seen:
    """A machine of the run that the engine has.

    node   where it runs, in the engine's words; "": not known
    place  in the queue, the first is 1; 0: not known. why: it waits, in the engine's words
    """

    state: State
    node: str = ""
    place: int = 0
    why: str = ""
    notice: Notice | None = None


class Denied(Exception):
    """The engine starts nothing. retry_s: when to ask again; 0: it does not know."""

    def __init__(self, why: Denial, text: str, retry_s: float = 0.0) -> None:
        super().__init__(text)
        self.why, self.text, self.retry_s = why, " ".join(text.split())[:500], retry_s


class Unreachable(Exception):
    """The scheduler does not answer at the moment: nothing is known."""


class Engine(Protocol):
    """One run's machines. look_s: seconds from one look to the next."""

    look_s: float

    def start(self, names: Sequence[str], *, standby: bool, avoid: Collection[str]) -> None:
        """Begin to start machines. Raises Denied: none of them is started.

        standby  whether they join without ranks
        avoid    nodes that had better not be taken
        """

    def end(self, names: Collection[str]) -> None:
        """End machines, or take them out of the queue. One that is not there is passed over."""

    def look(self) -> dict[str, Seen]:
        """Return all machines of the run that are queued or run. Raises Unreachable."""

    def words(self, name: str) -> str:
        """Return the last line that a machine's agent has written, as far as it is known."""

    def close(self) -> None:
        """End all machines of the run."""


def last_line(path: Path) -> str:
    """Return the last line of a file; "" if there is none."""
    try:
        lines = path.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((" ".join(line.split())[:400] for line in reversed(lines) if line.strip()), "")


def agent_flags(run: Run) -> list[str]:
    """Return what every agent of the run is started with, whatever starts it."""
    flags = ["--controller", run.controller, "--token-file", run.token_file]
    flags += ["--nproc", str(run.nproc), "--role", run.role]
    flags += ["--shutdown-timeout", str(run.shutdown_s)]
    return flags + (run.tls.flags() if run.tls is not None else [])
