"""The flags of `trainmover run`: torchrun's own parser, and ours on top.

A torchrun flag means what it means there, or it is refused with a sentence: never silently dropped.
"""

import argparse
import ipaddress
import json
import os
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmover import communicators
from trainmover.cli.options import complain_in_three_lines
from trainmover.cli.rates import bytes_a_second
from trainmover.errors import UserError
from trainmover.launch.checkpoints import CheckpointOptions
from trainmover.launch.run_job import RunOptions
from trainmover.protocol.messages import LogSpec
from trainmover.tls.files import absolute, all_or_none

RESTARTS_MAX = 3
RECORDS = ("moments", "full")
READINESS = ("held", "warm", "idle")
ON_DIVERGENCE = ("report", "replace")
ON_NAN = ("ignore", "report", "stop")
NO_STANDBY = ("end", "checkpoint")
FINGERPRINT_EVERY = 1000
SHUTDOWN_S = 5.0
FALSE_ALARMS_MAX = 1000
PORT_MAX = 65535

HONOURED = frozenset(
    [
        "nnodes",
        "nproc_per_node",
        "max_restarts",
        "role",
        "module",
        "log_dir",
        "redirects",
        "tee",
        "local_ranks_filter",
        "shutdown_timeout",
        "training_script",
        "training_script_args",
    ]
)
WITHOUT_EFFECT = {
    "standalone": "a local job always stands alone",
    "monitor_interval": "an exit is seen at once, without polling",
}
_MEETS = "trainmover lets machines meet by itself"
_PLACES = "trainmover gives ranks to machines by itself"
REFUSED = {
    "rdzv_backend": _MEETS,
    "rdzv_endpoint": _MEETS,
    "rdzv_id": _MEETS + "; a run is named with --run-id",
    "rdzv_conf": _MEETS,
    "master_addr": _MEETS,
    "master_port": _MEETS,
    "local_addr": _MEETS,
    "node_rank": _PLACES,
    "no_python": "a machine is replaced inside Python processes that trainmover prepares",
    "run_path": "give the script itself, or a module with -m",
    "start_method": "workers are always fresh processes, as with spawn",
    "event_log_handler": "events are kept in the journal (--journal)",
    "logs_specs": "logs are placed with --log-dir, --redirects and --tee",
    "duplicate_stdout_filters": "lines are not filtered by content",
    "duplicate_stderr_filters": "lines are not filtered by content",
    "numa_binding": "workers are not bound to NUMA nodes",
    "signals_to_handle": "SIGINT, SIGTERM and SIGHUP stop the job in order",
    "virtual_local_rank": "every worker sees its own local rank",
}


@dataclass(frozen=True)
class RunFlags:
    """A parsed command line. json: for programs."""

    options: RunOptions
    json: bool


def parse(argv: list[str]) -> RunFlags:
    """Raises UserError for what cannot be honoured. Imports torch."""
    flags = parser().parse_args(argv)
    _refuse(flags)
    nproc = _nproc(flags.nproc_per_node)
    script = flags.training_script
    if not flags.module and not Path(script).is_file():
        raise UserError(
            f"There is no script {script}.",
            means="Nothing was started.",
            do="trainmover run [options] SCRIPT [its arguments], or -m MODULE",
        )
    options = RunOptions(
        argv=[script, *flags.training_script_args],
        module=flags.module,
        machines=_machines(flags.nnodes, flags.machines),
        standbys=_at_least(0, flags.standbys, "--standbys"),
        nproc=nproc,
        comm=communicators.checked(flags.comm),
        restarts_max=_at_least(0, flags.max_restarts, "--max-restarts"),
        record=_record(flags.record),
        readiness=_readiness(flags.readiness),
        wait_s=_at_least(0, flags.wait_for_machine, "--wait-for-machine"),
        state_bandwidth=bytes_a_second(flags.state_bandwidth, "--state-bandwidth"),
        fingerprint_every=_at_least(0, flags.fingerprint_every, "--fingerprint-every"),
        on_divergence=_on_divergence(flags.on_divergence),
        watch=not flags.no_watch,
        false_alarms=_false_alarms(flags.false_alarms),
        no_standby=_no_standby(flags.no_standby, saves=bool(flags.checkpoint or flags.resume)),
        on_nan=_on_nan(flags.on_nan),
        snapshot_every=_snapshots(flags.snapshots),
        snapshot_copies=flags.snapshot_copies,
        checkpoints=CheckpointOptions(
            folder=flags.checkpoint,
            every=_at_least(1, flags.checkpoint_every, "--checkpoint-every"),
            keep=_at_least(1, flags.keep_checkpoints, "--keep-checkpoints"),
            resume=flags.resume,
        ),
        log=_log(flags, nproc),
        run_id=flags.run_id,
        journal=flags.journal,
        api_port=_port(flags.api_port),
        bind=_bind(flags.bind),
        token_file=flags.token_file,
        tls=flags.tls,
        tls_files=all_or_none(flags.tls_cert, flags.tls_key, flags.tls_ca),
        run_dir=flags.run_dir,
        shutdown_s=_shutdown_s(flags.shutdown_timeout),
        role=flags.role,
        worker=tuple(json.loads(flags.worker_program)),
    )
    return RunFlags(options, flags.json)


_RECORD_HELP = "large outputs of the first steps, for standbys: their moments, or full"
_READINESS_HELP = "of standbys: held at a first step, warm, or idle with nothing but processes"
_SNAPSHOTS_HELP = "steps from one to the next, off, or auto: where state has one holder only"
_CHECKPOINT_HELP = "write checkpoints to this folder, beside the steps"
_RESUME_HELP = "go on from the newest checkpoint in this folder, and write the next ones there"
_FINGERPRINT_HELP = "steps from one comparison of replicas to the next; 0: never"
_DIVERGENCE_HELP = "of replicas, by silent corruption: report it, or replace the machine"
_NO_WATCH_HELP = "leave ranks that stand still alone, as under a debugger"
_ALARMS_HELP = "ranks wrongly taken for stuck that you can bear in a week; more finds them sooner"
_NAN_HELP = "of a reported number that is NaN or infinite: ignore it, report it, or stop the job"
_BANDWIDTH_HELP = "what a machine may send of its state, as 500MB/s; no limit by default"
_BIND_HELP = "address for machines on other hosts; start each there: trainmover agent"
_TLS_HELP = "encrypt links, API, vaults and state, with a certificate made for this run"
_TLS_CERT_HELP = "the same with this certificate, PEM; --tls-key and --tls-ca belong to it"
_NO_STANDBY_HELP = "when none is left: end, or write the newest cut to --checkpoint, then end"
_WAIT_HELP = "when no standby is left, let the job stand until a machine joins; 0: end"


def parser() -> argparse.ArgumentParser:
    """torchrun's parser with our options."""
    from torch.distributed.run import get_args_parser  # the store starts meanwhile

    parser: argparse.ArgumentParser = get_args_parser()
    parser.prog = "trainmover run"
    parser.description = "Run a script on several machines that can be replaced while it runs."
    parser.epilog = "Options not in the trainmover group mean what they mean to torchrun."
    complain_in_three_lines(parser)
    _require_only_the_script(parser)
    if all(action.dest != "shutdown_timeout" for action in parser._actions):  # torch 2.11
        parser.add_argument("--shutdown-timeout", type=int, help="Seconds from SIGTERM to SIGKILL.")
    if "PET_MAX_RESTARTS" not in os.environ:
        parser.set_defaults(max_restarts=RESTARTS_MAX)
    add = parser.add_argument_group("trainmover").add_argument
    add("--machines", type=int, metavar="N", help="machines that hold ranks (= --nnodes)")
    add("--standbys", "--standby", type=int, default=0, metavar="K", help="machines to spare")
    known = " or ".join(communicators.NAMES)
    add("--comm", default=communicators.default(), metavar="NAME", help=f"between ranks: {known}")
    add("--record", default=RECORDS[0], metavar="HOW", help=_RECORD_HELP)
    add("--readiness", default=READINESS[0], metavar="HOW", help=_READINESS_HELP)
    add("--wait-for-machine", type=int, default=0, metavar="SECONDS", help=_WAIT_HELP)
    add("--no-standby", default=NO_STANDBY[0], metavar="HOW", help=_NO_STANDBY_HELP)
    add("--state-bandwidth", default="", metavar="RATE", help=_BANDWIDTH_HELP)
    add("--snapshots", default="auto", metavar="STEPS", help=_SNAPSHOTS_HELP)
    add("--snapshot-copies", type=int, default=1, choices=(1, 2), help="on so many other machines")
    add("--checkpoint", type=Path, metavar="DIR", help=_CHECKPOINT_HELP)
    add("--checkpoint-every", type=int, default=1000, metavar="STEPS", help="between checkpoints")
    add("--keep-checkpoints", type=int, default=3, metavar="N", help="remove older ones")
    add("--resume", type=Path, metavar="DIR", help=_RESUME_HELP)
    add("--on-divergence", default=ON_DIVERGENCE[0], metavar="HOW", help=_DIVERGENCE_HELP)
    add("--no-watch", action="store_true", help=_NO_WATCH_HELP)
    add("--false-alarms", type=float, default=1.0, metavar="N", help=_ALARMS_HELP)
    add("--on-nan", default=ON_NAN[0], metavar="HOW", help=_NAN_HELP)
    often = FINGERPRINT_EVERY
    add("--fingerprint-every", type=int, default=often, metavar="STEPS", help=_FINGERPRINT_HELP)
    add("--journal", type=Path, metavar="PATH", help="keep the run's journal here")
    add("--api-port", type=int, default=0, metavar="PORT", help="of the HTTP API; 0: any free one")
    add("--bind", default="", metavar="HOST[:PORT]", help=_BIND_HELP)
    add("--token-file", type=Path, metavar="FILE", help="use this token instead of a fresh one")
    add("--tls", action="store_true", help=_TLS_HELP)
    add("--tls-cert", type=absolute, default="", metavar="FILE", help=_TLS_CERT_HELP)
    add("--tls-key", type=absolute, default="", metavar="FILE", help="of --tls-cert; yours only")
    add("--tls-ca", type=absolute, default="", metavar="FILE", help="authorities to believe")
    add("--run-id", default="", metavar="ID", help="name of the run")
    add("--run-dir", type=Path, metavar="DIR", help="private files of the run; removed at its end")
    add("--worker-program", default="[]", help=argparse.SUPPRESS)  # for tests
    add("--json", action="store_true", help="one JSON object a line on stdout")
    return parser


def _require_only_the_script(parser: argparse.ArgumentParser) -> None:
    """argparse holds the script's own arguments for required too, and would say so."""
    for action in parser._actions:
        if action.dest == "training_script_args":
            action.required = False


def _refuse(flags: argparse.Namespace) -> None:
    """Raises UserError for a flag, or its PET_ variable, that would not mean what it says."""
    defaults = {action.dest: action.default for action in parser()._actions}
    for name, value in vars(flags).items():
        known = name in HONOURED or name in WITHOUT_EFFECT or name in OURS
        variable = f"PET_{name.upper()}"
        if known or (value == defaults[name] and variable not in os.environ):
            continue
        flag = variable if variable in os.environ else f"--{name.replace('_', '-')}"
        why = REFUSED.get(name, "this version of trainmover does not know it")
        raise UserError(
            f"{flag} is not supported: {why}.",
            means="Nothing was started.",
            do=f"Leave {flag} away.",
        )


OURS = frozenset(
    [
        "machines",
        "standbys",
        "comm",
        "snapshots",
        "snapshot_copies",
        "record",
        "readiness",
        "wait_for_machine",
        "no_standby",
        "state_bandwidth",
        "fingerprint_every",
        "checkpoint",
        "checkpoint_every",
        "keep_checkpoints",
        "resume",
        "on_divergence",
        "no_watch",
        "false_alarms",
        "on_nan",
        "journal",
        "api_port",
        "bind",
        "token_file",
        "tls",
        "tls_cert",
        "tls_key",
        "tls_ca",
        "run_id",
        "run_dir",
        "json",
        "worker_program",
    ]
)


def _machines(nnodes: str, machines: int | None) -> int:
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
    return _at_least(1, int(low) if machines is None else machines, "--machines")


def _record(given: str) -> str:
    return _one_of(
        RECORDS,
        given,
        f"--record {given} is not a way to keep a record.",
        "Give moments (small: shape, dtype, mean and deviation) or full (every value).",
    )


def _snapshots(given: str) -> int | None:
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


def _readiness(given: str) -> str:
    return _one_of(
        READINESS,
        given,
        f"--readiness {given} is not a state a standby can be kept in.",
        "Give held (the default: readiest), warm (less memory) or idle (none).",
    )


def _on_divergence(given: str) -> str:
    return _one_of(
        ON_DIVERGENCE,
        given,
        f"--on-divergence {given} is nothing that can be done about one.",
        "Give report (the default) or replace (its machine, by a standby).",
    )


def _no_standby(given: str, *, saves: bool) -> str:
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


def _on_nan(given: str) -> str:
    return _one_of(
        ON_NAN,
        given,
        f"--on-nan {given} is nothing that can be done about one.",
        "Give ignore (the default), report (a line), or stop (the end of the job).",
    )


def _false_alarms(given: float) -> float:
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


def _port(number: int) -> int:
    if not 0 <= number <= PORT_MAX:
        raise UserError(
            f"--api-port {number} is not a port.",
            means="Nothing was started.",
            do=f"Give a number up to {PORT_MAX}, or 0 for any free port.",
        )
    return number


def _bind(given: str) -> str:
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


def _shutdown_s(given: int | None) -> float:
    return SHUTDOWN_S if given is None else _at_least(0, given, "--shutdown-timeout")


def _at_least(least: int, value: int, flag: str) -> int:
    if value < least:
        raise UserError(
            f"{flag} must be at least {least}, not {value}.",
            means="Nothing was started.",
            do="See trainmover run --help",
        )
    return value


def _nproc(given: str) -> int:
    from torch.distributed.run import determine_local_world_size

    try:
        return _at_least(1, determine_local_world_size(given), "--nproc-per-node")
    except ValueError as error:
        raise UserError(
            f"--nproc-per-node {given} cannot be used: {error}.",
            means="Nothing was started.",
            do="Give a number, or one of auto, cpu, gpu.",
        ) from error


def _log(flags: argparse.Namespace, nproc: int) -> LogSpec:
    """torchrun's flags about output. Rank 0 is shown unless something else is asked for."""
    redirects, tee = _streams(flags.redirects, nproc), _streams(flags.tee, nproc)
    shown: list[int] | None = [0]
    if flags.local_ranks_filter:
        wanted = _numbers(flags.local_ranks_filter)
        machines = _machines(flags.nnodes, flags.machines)
        shown = [slot * nproc + local for slot in range(machines) for local in wanted]
        redirects |= {local: bits for local, bits in tee.items() if local not in wanted}
        tee = {local: bits for local, bits in tee.items() if local in wanted}
    log_dir = flags.log_dir
    if log_dir is None and (redirects or tee):
        log_dir = tempfile.mkdtemp(prefix="trainmover_logs_")
    log_dir = None if log_dir is None else str(Path(log_dir).resolve())
    return LogSpec(log_dir=log_dir, redirects=redirects, tee=tee, show=shown)


def _streams(given: str, nproc: int) -> dict[int, int]:
    """`3` for all local ranks or `0:1,1:3`, as torchrun has it."""
    from torch.distributed.elastic.multiprocessing import Std

    try:
        parsed: Any = Std.from_str(given)
    except ValueError as error:
        raise UserError(
            f"{given} does not say which streams: {error}.",
            means="Nothing was started.",
            do="0 none, 1 stdout, 2 stderr, 3 both; or for some local ranks 0:1,1:3",
        ) from error
    by_rank = parsed if isinstance(parsed, dict) else dict.fromkeys(range(nproc), parsed)
    return {local: int(std) for local, std in by_rank.items() if int(std)}


def _numbers(given: str) -> list[int]:
    try:
        return [int(part) for part in given.split(",")]
    except ValueError as error:
        raise UserError(
            f"--local-ranks-filter {given} is not a list of numbers.",
            means="Nothing was started.",
            do="For example --local-ranks-filter 0,1",
        ) from error
