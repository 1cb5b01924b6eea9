# SPDX-License-Identifier: Apache-2.0
"""A machine that arrives while a local run is under way: an agent that nobody waits for.

It is no child of the run's own process, but it ends with it, and its workers too, whatever happens
to whoever started it.
"""

import itertools
import os
import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from trainmover.errors import UserError
from trainmover.launch.local import AGENT, TAIL_BYTES, agent_arguments, spawn
from trainmover.launch.runs import Run
from trainmover.ownership import create_file


@dataclass(frozen=True)
class LateMachine:
    """An agent just started."""

    name: str
    stderr: Path
    process: "subprocess.Popen[bytes]"

    @property
    def pid(self) -> int:
        return self.process.pid

    def lives(self) -> bool:
        return self.process.poll() is None

    def last_words(self) -> str:
        return self.stderr.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()


def start_late(
    run: Run, present: Collection[str], name: str = "", *, rack: str = ""
) -> LateMachine:
    """Start an agent that dials the run's controller. present: names that are taken.

    Raises UserError if `name` is taken or is no name.
    """
    if name:
        _check(name, present)
    directory = Path(run.directory)
    for candidate in [name] if name else (f"m{number}" for number in itertools.count(1)):
        if candidate in present:
            continue
        try:
            (directory / candidate).mkdir(mode=0o700)
        except FileExistsError:
            continue
        except FileNotFoundError as error:
            raise UserError(
                f"Run {run.run_id} has just ended.",
                means="Nothing was started.",
                do="Start another: trainmover run --machines 2 --standbys 1 train.py",
            ) from error
        return _start(run, candidate, rack)
    raise _taken(name)


def _start(run: Run, name: str, rack: str) -> LateMachine:
    directory = Path(run.directory)
    stderr = directory / f"{name}.err"
    arguments = agent_arguments(
        run.controller,
        name,
        nproc=run.nproc,
        token_file=run.token_file,
        directory=directory / name,
        role=run.role,
        shutdown_s=run.shutdown_s,
        worker=run.worker,
        standby=True,
        rack=rack,
        tls=run.tls,
        run=run.pid,
    )
    with os.fdopen(create_file(stderr), "wb") as file:
        process = spawn(
            [*AGENT, *arguments], run.run_id, stdout=file.fileno(), stderr=file.fileno()
        )
    return LateMachine(name, stderr, process)


def _check(name: str, present: Collection[str]) -> None:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name) is None:
        raise UserError(
            f"{name!r} cannot be the name of a machine.",
            means="Nothing was started.",
            do="Use letters, digits, and . _ - after the first of them.",
        )
    if name in present:
        raise _taken(name)


def _taken(name: str) -> UserError:
    return UserError(
        f"{name} is, or was, a machine of this run.",
        means="Nothing was started.",
        do="Give another --machine, or none: the next free name is taken.",
    )
