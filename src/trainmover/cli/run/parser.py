# SPDX-License-Identifier: Apache-2.0
"""The command line of `trainmover run`: torchrun's own parser, and our options on top.

A torchrun flag means what it means there, or it is refused with a sentence: never silently dropped.
What is plainly wrong is said before all else (`look`).
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from trainmover import communicators
from trainmover.cli.examples import examples_of
from trainmover.cli.run.flag_values import (
    ANOMALIES,
    HEALTH,
    NO_STANDBY,
    NOTICES,
    NUMBERS,
    ON_DIVERGENCE,
    ON_NAN,
    READINESS,
    RECORDS,
    STRAGGLERS,
)
from trainmover.cli.run.torchruns import torchruns_parser
from trainmover.cli.suggest import complain_in_three_lines, see_help
from trainmover.errors import UserError
from trainmover.protocol.deadlines import PATIENCE_S, RELAYS_ABOVE
from trainmover.tls.files import absolute

RESTARTS_MAX = 3
FINGERPRINT_EVERY = 1000
_GROUP = "trainmover"

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

_GPU_HELP = "tensors of GPUs, where the script asks for nccl: staged (through host memory) or nccl"
_RECORD_HELP = "large outputs of the first steps, for standbys: their moments, or full"
_READINESS_HELP = "of standbys: held at a first step, warm, or idle with nothing but processes"
_SNAPSHOTS_HELP = "steps from one to the next, off, or auto: in 1 %% of the time"
_CHECKPOINT_HELP = "write checkpoints to this folder, beside the steps"
_RESUME_HELP = "go on from the newest checkpoint in this folder; auto: in --checkpoint, if there"
_FINGERPRINT_HELP = "steps from one comparison of replicas to the next; 0: never"
_DIVERGENCE_HELP = "of replicas, by silent corruption: report it, or replace the machine"
_NUMBERS_HELP = "where a step that is made again gives others: report it, or end the job (exact)"
_NO_WATCH_HELP = "leave ranks that stand still alone, as under a debugger"
_NO_AUTO_HELP = "serve only scripts that name trainmover: no loop is a training loop by itself"
_ALARMS_HELP = "ranks wrongly taken for stuck that you can bear in a week; more finds them sooner"
_HEALTH_HELP = "before a machine takes ranks: off, watch (measure it), act (keep out who fails)"
_STRAGGLERS_HELP = "machines that are slower than others: watch for them, act (move), or off"
_ANOMALIES_HELP = "machines that seem about to fail: watch for them, act (move), or off"
_NOTICES_HELP = "machines that say they will be taken away: act (move), watch (say it), or off"
_NAN_HELP = "of a reported number that is NaN or infinite: ignore it, report it, or stop the job"
_BANDWIDTH_HELP = "what a machine may send of its state, as 500MB/s; no limit by default"
_NOTIFY_HELP = (
    "run this at a loss, when it is over, when no standby is left, while the job waits for a "
    "machine, and at the end: TRAINMOVER_EVENT, TRAINMOVER_TEXT, and JSON on its input"
)
_CONFIG_HELP = "flags in a file, as standbys = 2; by default trainmover.toml of this folder"
_REPORT_HELP = "at the end, write where the time went: as .html, .json or .txt"
_BIND_HELP = "address for machines on other hosts; start each there: trainmover agent"
_ENGINE_HELP = "have machines started, replaced and given back by: local, slurm"
_ENGINE_ARGS_HELP = "of sbatch, such as a partition: --engine-args='-p gpu --gres=gpu:8'"
_TLS_HELP = "encrypt links, API, vaults, state, collectives; with a certificate made for this run"
_TLS_CERT_HELP = "the same with this certificate, PEM; --tls-key and --tls-ca belong to it"
_RELAYS_HELP = "where there are more machines, some carry to the controller what others say"
_PATIENCE_HELP = "how long a machine of which nothing is heard may be away"
_NO_STANDBY_HELP = "when none is left: end, or write the newest snapshots to --checkpoint, then end"
_WAIT_HELP = "when no standby is left, let the job stand until a machine joins; 0: end"
_SWITCHES = {"standalone", "module", "no_python", "run_path", "virtual_local_rank"}
_SHORT = {"module": "-m", "redirects": "-r", "tee": "-t"}
_SCRIPT = ("training_script", "training_script_args")


def look(argv: list[str]) -> None:
    """Check a command line without torch. Raises UserError for a flag or a script that there is
    not."""
    known = known_flags()
    flags, left = known.parse_known_args(argv)
    if flags.help:
        return
    if left:
        raise UserError(
            f"There is no flag {left[0].partition('=')[0]}.",
            means="Nothing was started.",
            do=see_help(known, left[0]),
        )
    script = flags.training_script
    if script is None:
        known.error("the following arguments are required: training_script")
    if not flags.module and not Path(script).is_file():
        raise UserError(
            f"There is no script {script}.",
            means="Nothing was started.",
            do="trainmover run [options] SCRIPT [its arguments], or -m MODULE",
        )


def known_flags() -> argparse.ArgumentParser:
    """torchrun's flags by name, and ours."""
    known = argparse.ArgumentParser(prog="trainmover run", add_help=False)
    complain_in_three_lines(known)
    known.add_argument("-h", "--help", action="store_true")
    for name in sorted({*HONOURED, *WITHOUT_EFFECT, *REFUSED} - {*_SCRIPT}):
        short = [_SHORT[name]] if name in _SHORT else []
        action = "store_true" if name in _SWITCHES else "store"
        known.add_argument(*short, f"--{name.replace('_', '-')}", f"--{name}", action=action)
    _add_ours(known)
    known.add_argument("training_script", nargs="?")
    known.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return known


def own_flags() -> dict[str, bool]:
    """Return trainmover's own long flags, and whether each takes a value."""
    own = argparse.ArgumentParser(add_help=False)
    _add_ours(own)
    return {
        option: action.nargs != 0
        for action in own._actions
        for option in action.option_strings
        if option.startswith("--")
    }


def parser() -> argparse.ArgumentParser:
    """torchrun's parser with our options."""
    parser = torchruns_parser()
    parser.prog = "trainmover run"
    parser.description = "Run a script on several machines that can be replaced while it runs."
    same = "Options not in the trainmover group mean what they mean to torchrun."
    parser.epilog = f"{same}\n\n{examples_of('run')}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    complain_in_three_lines(parser)
    _require_only_the_script(parser)
    if all(action.dest != "shutdown_timeout" for action in parser._actions):  # torch 2.11
        parser.add_argument("--shutdown-timeout", type=int, help="Seconds from SIGTERM to SIGKILL.")
    for action in parser._actions:
        if action.dest == "max_restarts":
            action.help = f"{action.help} Default: {RESTARTS_MAX}; of torchrun: 0."
    if "PET_MAX_RESTARTS" not in os.environ:
        parser.set_defaults(max_restarts=RESTARTS_MAX)
    _add_ours(parser)
    return parser


def _add_ours(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group(_GROUP).add_argument

    def one_of(flag: str, known: Sequence[str], about: str, default: str = "") -> None:
        """Checked with a sentence of our own, so no `choices`; a shell completes the words."""
        made = add(flag, default=default or known[0], metavar="HOW", help=about)
        made.words = known  # type: ignore[attr-defined]

    add("--machines", type=int, metavar="N", help="machines that hold ranks (= --nnodes)")
    add("--standbys", "--standby", type=int, default=0, metavar="K", help="machines to spare")
    known = " or ".join(communicators.NAMES)
    carries = f"between ranks: {known}"
    one_of("--comm", communicators.NAMES, carries, default=communicators.default())
    one_of("--gpu-comm", communicators.GPU_NAMES, _GPU_HELP)
    one_of("--record", RECORDS, _RECORD_HELP)
    one_of("--readiness", READINESS, _READINESS_HELP)
    add("--wait-for-machine", type=int, default=0, metavar="SECONDS", help=_WAIT_HELP)
    add("--patience", type=float, default=PATIENCE_S, metavar="SECONDS", help=_PATIENCE_HELP)
    add("--relays-above", type=int, default=RELAYS_ABOVE, metavar="N", help=_RELAYS_HELP)
    one_of("--no-standby", NO_STANDBY, _NO_STANDBY_HELP)
    add("--state-bandwidth", default="", metavar="RATE", help=_BANDWIDTH_HELP)
    add("--snapshots", default="auto", metavar="STEPS", help=_SNAPSHOTS_HELP)
    add("--snapshot-copies", type=int, default=1, choices=(1, 2), help="on so many other machines")
    add("--checkpoint", type=Path, metavar="DIR", help=_CHECKPOINT_HELP)
    add("--checkpoint-every", type=int, default=1000, metavar="STEPS", help="between checkpoints")
    add("--keep-checkpoints", type=int, default=3, metavar="N", help="remove older ones")
    add("--resume", type=Path, metavar="DIR|auto", help=_RESUME_HELP)
    one_of("--on-divergence", ON_DIVERGENCE, _DIVERGENCE_HELP)
    one_of("--numbers", NUMBERS, _NUMBERS_HELP)
    add("--no-auto", action="store_true", help=_NO_AUTO_HELP)
    add("--no-watch", action="store_true", help=_NO_WATCH_HELP)
    add("--false-alarms", type=float, default=1.0, metavar="N", help=_ALARMS_HELP)
    one_of("--stragglers", STRAGGLERS, _STRAGGLERS_HELP)
    one_of("--health", HEALTH, _HEALTH_HELP)
    one_of("--anomalies", ANOMALIES, _ANOMALIES_HELP)
    one_of("--notices", NOTICES, _NOTICES_HELP)
    one_of("--on-nan", ON_NAN, _NAN_HELP)
    often = FINGERPRINT_EVERY
    add("--fingerprint-every", type=int, default=often, metavar="STEPS", help=_FINGERPRINT_HELP)
    add("--journal", type=Path, metavar="PATH", help="keep the run's journal here")
    add("--report", type=Path, metavar="FILE", help=_REPORT_HELP)
    add("--notify-cmd", default="", metavar="CMD", help=_NOTIFY_HELP)
    add("--no-progress", action="store_true", help="do not say how far the run is")
    add("--api-port", type=int, default=0, metavar="PORT", help="of the HTTP API; 0: any free one")
    add(
        "--api-bind",
        default="",
        metavar="HOST:PORT",
        help="let other hosts use the API; with --tls",
    )
    add("--engine", default="", metavar="NAME", help=_ENGINE_HELP)
    add("--engine-args", default="", metavar="ARGS", help=_ENGINE_ARGS_HELP)
    add("--bind", default="", metavar="HOST[:PORT]", help=_BIND_HELP)
    add("--token-file", type=Path, metavar="FILE", help="use this token instead of a fresh one")
    add("--tls", action="store_true", help=_TLS_HELP)
    add("--tls-cert", type=absolute, default="", metavar="FILE", help=_TLS_CERT_HELP)
    add("--tls-key", type=absolute, default="", metavar="FILE", help="of --tls-cert; yours only")
    add("--tls-ca", type=absolute, default="", metavar="FILE", help="authorities to believe")
    add("--config", type=Path, metavar="FILE", help=_CONFIG_HELP)
    add("--run-id", default="", metavar="ID", help="name of the run")
    add("--run-dir", type=Path, metavar="DIR", help="private files of the run; removed at its end")
    add("--worker-program", default="[]", help=argparse.SUPPRESS)  # for tests
    add("--json", action="store_true", help="one JSON object a line on stdout")


def ours(parser: argparse.ArgumentParser) -> set[str]:
    """Names of our options."""
    (group,) = (group for group in parser._action_groups if group.title == _GROUP)
    return {action.dest for action in group._group_actions}


def _require_only_the_script(parser: argparse.ArgumentParser) -> None:
    """argparse holds the script's own arguments for required too, and would say so."""
    for action in parser._actions:
        if action.dest == "training_script_args":
            action.required = False


def refuse(flags: argparse.Namespace) -> None:
    """Raises UserError for a flag, or its PET_ variable, that would not mean what it says."""
    known_to_us = parser()
    defaults = {action.dest: action.default for action in known_to_us._actions}
    meant = {*HONOURED, *WITHOUT_EFFECT, *ours(known_to_us)}
    for name, value in vars(flags).items():
        variable = f"PET_{name.upper()}"
        if name in meant or (value == defaults[name] and variable not in os.environ):
            continue
        flag = variable if variable in os.environ else f"--{name.replace('_', '-')}"
        why = REFUSED.get(name, "this version of trainmover does not know it")
        raise UserError(
            f"{flag} is not supported: {why}.",
            means="Nothing was started.",
            do=f"Leave {flag} away.",
        )
