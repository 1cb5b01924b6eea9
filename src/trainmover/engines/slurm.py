# SPDX-License-Identifier: Apache-2.0
"""Machines as one-node jobs of Slurm, tasks of arrays: the loss of a node takes one machine only.

The run's jobs are known by their name, a machine by its index in the array: m7 is task 7. Of Slurm
only the commands are used, with formats that all versions since 20.11 have.
"""

import getpass
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from trainmover.controller.policies.capacity.known import Denial, NoticeKind
from trainmover.engines.engine import (
    Denied,
    Notice,
    Seen,
    State,
    Unreachable,
    agent_flags,
    last_line,
)
from trainmover.errors import UserError
from trainmover.launch.runs import Run
from trainmover.ownership import write_file

NOTICE_S = 90
"""Before its time limit a job is told, and its ranks move."""
COMMANDS = ("sbatch", "squeue", "sinfo", "scancel")
PLACES_S = 10.0
"""From one look at the whole queue to the next: it may be long."""
ANSWER_S = 20.0
LEAVES = ("drain", "drng", "fail", "maint", "reboot", "down", "power")
"""Beginnings of the states of nodes whose machines are to go."""
_DENIALS = (
    (Denial.UNREACHABLE, r"unable to contact|timed out|connection refused|communication"),
    (Denial.QUOTA, r"limit|qos.*policy|accounting/qos"),
    (Denial.FORBIDDEN, r"permission denied|access.*denied|not authorized|invalid user"),
    (Denial.FULL, r"temporarily unable|try again|queue is full|too many"),
)
"""Slurm tells by its words alone; what is none of these cannot be granted as it was asked for."""
_RETRY_S = {Denial.UNREACHABLE: 10.0, Denial.QUOTA: 60.0, Denial.FULL: 30.0}
_QUEUED, _RUNS = {"PD", "CF", "RQ", "RH", "RS", "SE"}, {"R", "S", "ST", "RF", "SO"}
_SCRIPT = """\
#!/bin/sh
# A machine of trainmover run {run_id}: an agent on this node, until the job or the run is over.
rack=${{SLURM_TOPOLOGY_ADDR%.*}}
[ "$rack" != "$SLURM_TOPOLOGY_ADDR" ] || rack=
exec {agent} --alone --notice {notice} --machine "m$SLURM_ARRAY_TASK_ID" \\
    ${{rack:+--rack "$rack"}} "$@"
"""


class Slurm:
    """args: further ones of sbatch, such as a partition, GPUs, and a time limit."""

    look_s = 2.0

    def __init__(self, run: Run, args: Sequence[str] = ()) -> None:
        self._run, self._args = run, args
        self._name = f"trainmover-{run.run_id}"
        self._log = Path(run.directory) / "engine"
        self._log.mkdir(mode=0o700, exist_ok=True)
        self._jobs: dict[str, str] = {}  # Machine -> the id of its job, as of the last look.
        self._places: dict[str, int] = {}
        self._places_s = -math.inf
        self._script = Path(run.directory) / "machine.sh"
        write_file(self._script, self._agent().encode())

    def _agent(self) -> str:
        """Slurm signals all processes of a job. Workers leave SIGTERM to their agent, which has
        time to give their ranks away; it ends them by a word of its own."""
        worker = self._run.worker or (sys.executable, "-u", "-m", "trainmover.worker")
        kept = ["/bin/sh", "-c", 'trap "" TERM; exec "$@"', "sh", *worker]
        agent = [sys.executable, "-P", "-m", "trainmover.agent", *agent_flags(self._run)]
        agent += ["--worker", json.dumps(kept)]
        return _SCRIPT.format(run_id=self._run.run_id, agent=shlex.join(agent), notice=NOTICE_S)

    def start(self, names: Sequence[str], *, standby: bool, avoid: Collection[str]) -> None:
        command = ["sbatch", "--parsable", f"--job-name={self._name}"]
        command += [f"--array={','.join(_index(name) for name in names)}"]
        command += ["--nodes=1", "--ntasks=1", "--exclusive", "--no-requeue"]
        command += [f"--signal=B:USR1@{NOTICE_S}", f"--output={self._log}/m%a.out"]
        command += [f"--exclude={','.join(sorted(avoid))}"] * bool(avoid)
        command += [*self._args, str(self._script)] + ["--standby"] * standby
        done = _called(command)
        if done.returncode:
            raise _denied(done.stderr)

    def end(self, names: Collection[str]) -> None:
        jobs = [self._jobs[name] for name in names if name in self._jobs]
        if jobs:
            _called(["scancel", *jobs])

    def look(self) -> dict[str, Seen]:
        states = "--states=PD,CF,R,S,RQ,RH,RS,SE,ST,RF,SO"
        rows = self._asked(["squeue", "-h", "-r", states, f"--name={self._name}",
                            f"--user={getpass.getuser()}", "-o", "%F|%K|%t|%N|%r|%L"])  # fmt: skip
        found: dict[str, tuple[str, str, str, float]] = {}
        for job, index, state, node, why, left in rows:
            if index.isdigit() and state in _QUEUED | _RUNS:
                found[f"m{index}"] = state, node, why, seconds_of(left)
                self._jobs[f"m{index}"] = f"{job}_{index}"
        running = {n: one for n, one in found.items() if one[0] in _RUNS}
        leaving = self._leaving({node for _, node, _, _ in running.values()})
        places = self._look_for_places() if len(running) < len(found) else {}
        seen = {}
        for name, (_, node, why, left_s) in found.items():
            if name in running:
                seen[name] = Seen(State.RUNNING, node, notice=_notice(leaving.get(node), left_s))
            else:
                seen[name] = Seen(State.QUEUED, place=places.get(name, 0), why=why)
        return seen

    def words(self, name: str) -> str:
        return last_line(self._log / f"{name}.out")

    def close(self) -> None:
        _called(["scancel", f"--name={self._name}", f"--user={getpass.getuser()}"])

    def _leaving(self, nodes: Collection[str]) -> Mapping[str, str]:
        """Node that is to go -> why, in the words of whoever has drained it."""
        if not nodes:
            return {}
        rows = self._asked(
            ["sinfo", "-h", "-N", f"--nodes={','.join(sorted(nodes))}", "-o", "%N|%T|%E"]
        )
        said = {node: (state.rstrip("*~#!%$@^-+"), why) for node, state, why in rows}
        return {
            node: state if why in ("", "none") else f"{state}: {why}"
            for node, (state, why) in said.items()
            if state.lower().startswith(LEAVES)
        }

    def _look_for_places(self) -> Mapping[str, int]:
        """Machine that waits -> its place in the queue of its partition."""
        if time.monotonic() < self._places_s + PLACES_S:
            return self._places
        rows = self._asked(["squeue", "-h", "-r", "-t", "PD", "--sort=-p,i", "-o", "%P|%j|%K"])
        before: dict[str, int] = {}
        places: dict[str, int] = {}
        for partition, name, index in rows:
            before[partition] = before.get(partition, 0) + 1
            if name == self._name:
                places.setdefault(f"m{index}", before[partition])
        self._places, self._places_s = places, time.monotonic()
        return places

    @staticmethod
    def _asked(command: Sequence[str]) -> list[list[str]]:
        done = _called(command)
        if done.returncode:
            raise Unreachable(done.stderr)
        fields = command[-1].count("|")
        lines = [line.split("|", fields) for line in done.stdout.splitlines()]
        return [line for line in lines if len(line) == fields + 1]


def check() -> None:
    """Raise UserError if Slurm cannot be used from here."""
    missing = [command for command in COMMANDS if shutil.which(command) is None]
    if missing:
        raise UserError(
            f"--engine slurm needs {', '.join(missing)}, which this host has not.",
            means="Nothing was started.",
            do="Start the run on a host of the cluster; in Debian the package is slurm-client.",
        )


def seconds_of(text: str) -> float:
    """Return Slurm's `days-hours:minutes:seconds` in seconds; infinity where there is no limit.

    >>> [seconds_of(text) for text in ("1-02:03:04", "5:06", "UNLIMITED", "0:00")]
    [93784.0, 306.0, inf, 0.0]
    """
    if re.fullmatch(r"(\d+-)?(\d+:)*\d+", text) is None:
        return math.inf
    days, _, rest = text.rpartition("-")
    seconds = 0
    for part in rest.split(":"):
        seconds = 60 * seconds + int(part)
    return float(86400 * int(days or 0) + seconds)


def _notice(leaving: str | None, left_s: float) -> Notice | None:
    """The time limit is the nearer one: it has a deadline."""
    if left_s <= NOTICE_S:
        return Notice(NoticeKind.TIME_LIMIT, left_s, "its time limit")
    return None if leaving is None else Notice(NoticeKind.DRAIN, why=leaving)


def _index(name: str) -> str:
    return name.removeprefix("m")


def _denied(said: str) -> Denied:
    known = (why for why, pattern in _DENIALS if re.search(pattern, said, re.IGNORECASE))
    why = next(known, Denial.INVALID)
    return Denied(why, said.replace("sbatch: error: ", ""), _RETRY_S.get(why, 0.0))


def _called(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """One that does not answer has failed, as one that there is not."""
    # Where this is in a job itself: that is of the job, and none of those to come.
    ours = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k == "SLURM_CONF"}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_S, check=False, env=ours
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} timed out: {error}")
