# SPDX-License-Identifier: Apache-2.0
"""Values of the flags of `trainmover run`: each check gives its value, or raises UserError."""

import ipaddress
import math
import os
import shlex
import socket
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

from trainmover.cli.report.forms import check_name
from trainmover.errors import UserError
from trainmover.protocol.deadlines import Deadlines, least_patience_s

RECORDS = ("moments", "full")
READINESS = ("held", "warm", "idle")
ON_DIVERGENCE = ("report", "replace")
NUMBERS = ("report", "exact")
STRAGGLERS = ("watch", "act", "off")
HEALTH = ("off", "watch", "act")
ANOMALIES = ("watch", "act", "off")
NOTICES = ("act", "watch", "off")
ON_NAN = ("ignore", "report", "stop")
NO_STANDBY = ("end", "checkpoint")
SHUTDOWN_S = 5.0
FALSE_ALARMS_MAX = 1000
ENGINES = ("local", "slurm")
PORT_MAX = 65535
_Number = TypeVar("_Number", int, float)


def machines(nnodes: str, machines: int | None) -> int:
    low, _, high = nnodes.partition(":")
    if not low.isdigit() or (high and high != low):
        raise UserError(
            f"--nnodes {nnodes} is not a number.",
            means="The world size never changes here: a lost machine is replaced by a standby.",
            do="Use --nnodes N (or --machines N) and --standbys K.",
        )
    if machines is not None and nnodes != "1:1" and int(low) != machines:
        raise UserError(
            f"--nnodes {nnodes} and --machines {machines} contradict each other.",
            means="Nothing was started.",
            do="Give one of them.",
        )
    return at_least(1, int(low) if machines is None else machines, "--machines")


def patience(given: float) -> float:
    """Return for how many seconds a machine may be away: no fewer than other deadlines need."""
    least_s = least_patience_s(Deadlines())
    if not math.isfinite(given) or given < least_s:
        raise UserError(
            f"--patience {given:g} is shorter than the controller needs to find out who is lost "
            f"({least_s:g} s).",
            means="Nothing was started.",
            do=f"Use {least_s:g} or more, or leave the flag out (60).",
        )
    return given


def record(given: str) -> str:
    return _one_of(
        RECORDS,
        given,
        f"--record {given} is not a way to keep a record.",
        "Give moments (small: shape, dtype, mean and deviation) or full (every value).",
    )


def snapshots(given: str) -> int | None:
    if given == "auto":
        return None
    if given == "off":
        return 0
    if not given.isdecimal() or int(given) < 1:
        raise UserError(
            f"--snapshots {given} does not say when to keep snapshots.",
            means="Nothing was started.",
            do="Give a number of steps, auto (where state has only one holder) or off.",
        )
    return int(given)


def readiness(given: str) -> str:
    return _one_of(
        READINESS,
        given,
        f"--readiness {given} is not a state a standby can be kept in.",
        "Give held (the default: readiest), warm (less memory) or idle (none).",
    )


def on_divergence(given: str) -> str:
    return _one_of(
        ON_DIVERGENCE,
        given,
        f"--on-divergence {given} is nothing that can be done about one.",
        "Give report (the default) or replace (its machine, by a standby).",
    )


def is_exact(given: str) -> bool:
    known = _one_of(
        NUMBERS,
        given,
        f"--numbers {given} is nothing that can be done where a step gives others.",
        "Give report (the default: the job goes on) or exact (it ends).",
    )
    return known == "exact"


def stragglers(given: str) -> str:
    return _one_of(
        STRAGGLERS,
        given,
        f"--stragglers {given} is nothing that can be done about a slow machine.",
        "Give off, watch (the default: say it) or act (move its ranks to a standby).",
    )


def health(given: str) -> str:
    return _one_of(
        HEALTH,
        given,
        f"--health {given} is nothing that can be done about a machine's health.",
        "Give off (the default), watch (measure it, and say it) or act (who fails takes no ranks).",
    )


def notices(given: str) -> str:
    return _one_of(
        NOTICES,
        given,
        f"--notices {given} is nothing that can be done about a machine that will be taken away.",
        "Give act (the default: its ranks go to a standby), watch (say it) or off.",
    )


def anomalies(given: str) -> str:
    return _one_of(
        ANOMALIES,
        given,
        f"--anomalies {given} is nothing that can be done about a machine that may fail soon.",
        "Give off, watch (the default: say it) or act (its ranks go to a standby).",
    )


def no_standby(given: str, *, saves: bool) -> str:
    if given == "checkpoint" and not saves:
        raise UserError(
            "--no-standby checkpoint needs a folder for it.",
            means="Nothing was started.",
            do="Give one with --checkpoint DIR.",
        )
    return _one_of(
        NO_STANDBY,
        given,
        f"--no-standby {given} is nothing that can be done without one.",
        "Give end (the default) or checkpoint; to wait for one is --wait-for-machine.",
    )


def on_nan(given: str) -> str:
    return _one_of(
        ON_NAN,
        given,
        f"--on-nan {given} is nothing that can be done about one.",
        "Give ignore (the default), report (a line), or stop (the end of the job).",
    )


def again(resume: Path | None, checkpoint: Path | None) -> bool:
    """Tell whether the same call may be made again and again: --resume auto. A folder of that name
    is given by its whole path."""
    if str(resume) != "auto":
        return False
    if checkpoint is None:
        raise UserError(
            "--resume auto needs a folder in which to look.",
            means="Nothing was started.",
            do="Give the one that checkpoints are to be written to: --checkpoint DIR.",
        )
    return True


def report(given: Path | None) -> Path | None:
    """Check before the run that the report can be written."""
    if given is None:
        return None
    if not os.access(given.resolve().parent, os.W_OK | os.X_OK):
        raise UserError(
            f"--report {given}: there is no folder that could be written to.",
            means="Nothing was started.",
            do="Make the folder, or name another.",
        )
    return check_name(given)


def false_alarms(given: float) -> float:
    if not 0 < given <= FALSE_ALARMS_MAX:
        raise UserError(
            f"--false-alarms {given:g} is no number of alarms in a week.",
            means="Nothing was started.",
            do=f"Give one above 0 and at most {FALSE_ALARMS_MAX}; --no-watch looks for nothing.",
        )
    return given


def _one_of(known: Collection[str], given: str, happened: str, do: str) -> str:
    if given not in known:
        raise UserError(happened, means="Nothing was started.", do=do)
    return given


def port(number: int) -> int:
    if not 0 <= number <= PORT_MAX:
        raise UserError(
            f"--api-port {number} is not a port.",
            means="Nothing was started.",
            do=f"Give a number up to {PORT_MAX}, or 0 for any free port.",
        )
    return number


def engine(given: str) -> str:
    """The name of an engine that can be used from here; "" if machines are started otherwise."""
    if given not in ("", *ENGINES):
        raise UserError(
            f"There is no engine {given}.",
            means="Nothing was started.",
            do=f"Give --engine {' or '.join(ENGINES)}; or none, and all machines are started here.",
        )
    if given == "slurm":
        from trainmover.engines.slurm import check

        check()
    return given


def engine_args(given: str, engine: str) -> tuple[str, ...]:
    """Arguments for the engine, as a shell would split them."""
    try:
        args = tuple(shlex.split(given))
    except ValueError as error:
        raise UserError(
            f"--engine-args cannot be read: {error}.",
            means="Nothing was started.",
            do='Quote them once: --engine-args="--partition=gpu --gres=gpu:8"',
        ) from error
    if args and engine != "slurm":
        raise UserError(
            f"--engine-args {given} is for --engine slurm.",
            means="Nothing was started.",
            do="Add --engine slurm, or remove --engine-args.",
        )
    return args


def address_here() -> str:
    """The address of this host that others reach it by, as its routes have it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Nothing is sent.
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def bind(given: str) -> str:
    """host:port; "" if no other host takes part. The others dial it, so a wildcard is none."""
    if not given:
        return ""
    host, _, port = given.partition(":")
    try:
        usable = not ipaddress.IPv4Address(host).is_unspecified and 0 <= int(port or 0) <= PORT_MAX
    except ValueError:
        usable = False
    if not usable:
        raise UserError(
            f"--bind {given} is no address that other hosts could reach this one by.",
            means="Nothing was started.",
            do="Give a numeric IPv4 address of this host, and a port if it must be known: "
            "10.0.0.5:7070",
        )
    return f"{host}:{int(port or 0)}"


def api_bind(given: str, *, tls: bool, port_given: bool) -> str:
    """host:port where the API listens for other hosts; "" if for none. Names are resolved there."""
    if not given:
        return ""
    host, _, port = given.rpartition(":")
    if not host or not port.isdigit() or int(port) > PORT_MAX:
        raise UserError(
            f"--api-bind {given} is no address.",
            means="Nothing was started.",
            do="Give an IPv4 address or a name of this host, and a port: 10.0.0.5:8443",
        )
    if port_given:
        raise UserError(
            "--api-bind and --api-port both say where the API listens.",
            means="Nothing was started.",
            do="Leave --api-port away.",
        )
    if not tls:
        raise UserError(
            "--api-bind opens the API to other hosts, and without --tls they could read the token.",
            means="Nothing was started.",
            do="Add --tls, or --tls-cert, --tls-key and --tls-ca.",
        )
    return given


def shutdown_s(given: int | None) -> float:
    return SHUTDOWN_S if given is None else at_least(0, given, "--shutdown-timeout")


def nproc(given: str) -> int:
    try:
        return at_least(1, _nproc(given), "--nproc-per-node")
    except ValueError as error:
        raise UserError(
            f"--nproc-per-node {given} cannot be used: {error}.",
            means="Nothing was started.",
            do="Give a number, or one of auto, cpu, gpu.",
        ) from error


def _nproc(given: str) -> int:
    if given.isdecimal():
        return int(given)
    from torch.distributed.run import determine_local_world_size

    return int(determine_local_world_size(given))


def at_least(least: int, value: _Number, flag: str) -> _Number:
    if value < least:
        raise UserError(
            f"{flag} must be at least {least}, not {value:g}.",
            means="Nothing was started.",
            do="See trainmover run --help",
        )
    return value
