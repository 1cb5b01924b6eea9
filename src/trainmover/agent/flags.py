# SPDX-License-Identifier: Apache-2.0
"""What an agent is started with. Light, for who only asks what there is."""

import argparse
from pathlib import Path

from trainmover.escaping import is_one_line
from trainmover.tls.files import absolute

_NOTICE = "from SIGUSR1 or SIGTERM, which say that this machine is taken away, until it is"
_NOTICE_FILE = "says the same by being there: empty, or with a span (90s) or a moment in UTC"
_NOTICE_FROM = "ask the engine that this machine runs on for such a notice, every 5 s"
ENGINES = ("aws", "gce", "azure")
_KERNEL_LOG = "look through it for signs of failure; /dev/kmsg by default, /dev/null for none"
NOTICE_S_MAX = 1e6


def _seconds(given: str) -> float:
    number = float(given)
    if not 0 <= number <= NOTICE_S_MAX:
        raise ValueError(given)
    return number


def name(given: str) -> str:
    """A name that is shown to people. Raises ArgumentTypeError."""
    if not is_one_line(given):
        raise argparse.ArgumentTypeError(f"{given!r} has characters that cannot be seen")
    return given


def parser(examples: str = "") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainmover agent",
        description="Be one machine of a run that was started on another host.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--controller", required=True, metavar="HOST:PORT", help="where the job's controller is")
    add(
        "--machine",
        type=name,
        required=True,
        metavar="NAME",
        help="a name no other machine of the job has",
    )
    add("--nproc", type=int, default=1, metavar="N", help="workers on this machine")
    add("--standby", action="store_true", help="join without ranks")
    add("--token-file", type=Path, required=True, metavar="FILE", help="the job's token")
    add("--tls-cert", type=absolute, default="", metavar="FILE", help="shown to who dials here")
    add("--tls-key", type=absolute, default="", metavar="FILE", help="that belongs to it")
    add(
        "--tls-ca", type=absolute, default="", metavar="FILE", help="whom to believe who is dialled"
    )
    add("--dir", type=Path, metavar="DIR", help="private to this machine; removed at the end")
    add(
        "--rack",
        type=name,
        default="",
        metavar="NAME",
        help="machines of one rack may be lost together",
    )
    add("--role", type=name, default="default", metavar="NAME", help="ROLE_NAME of the workers")
    add("--shutdown-timeout", type=float, default=5.0, metavar="S", help="from SIGTERM to SIGKILL")
    add("--controller-timeout", type=float, default=60.0, metavar="S", help="it may be away")
    add("--notice", type=_seconds, default=30.0, metavar="S", help=_NOTICE)
    add("--notice-file", type=Path, metavar="FILE", help=_NOTICE_FILE)
    add("--notice-from", choices=ENGINES, default="", help=_NOTICE_FROM)
    add("--kernel-log", type=Path, metavar="FILE", help=_KERNEL_LOG)
    add("--worker", metavar="JSON", help=argparse.SUPPRESS)
    add("--alone", action="store_true", help=argparse.SUPPRESS)  # a SIGTERM is for no other machine
    add("--fork-server", type=int, metavar="FD", help=argparse.SUPPRESS)
    add("--run", type=int, metavar="PID", help=argparse.SUPPRESS)  # so does the job
    add("--parent", type=int, metavar="PID", help=argparse.SUPPRESS)  # ends with it
    return parser
