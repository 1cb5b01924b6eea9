# SPDX-License-Identifier: Apache-2.0
"""Flags of each command. Light: a flag that there is not has its answer at once."""

import argparse
from pathlib import Path

from trainmover.agent.flags import name
from trainmover.cli.examples import examples_of
from trainmover.cli.suggest import complain_in_three_lines
from trainmover.simulator.faults import MIXES, NAMES

SHELLS = ("bash", "fish", "zsh")
_DEADLINE = "when it will be gone: 90s, 10m, 1h from now; what cannot be in time is said"
_FORCE = "also if that ends the job"
_HOLD = "each stays cordoned until trainmover uncordon; else it gets fresh processes"
_PLACE_FROM = "JSON: a list of machines in the order of their ranks, or {slot: machine}"
_PLACE_BY = "is called with the status (as --json has it), and returns the same"
_REPORT_OUT = "write it there: a page with plots as .html, or .json, or .txt"
_INHERITED = ("--supervisor", "--control", "--api", "--checkpoint-lock", "--journal-memory")
_JSON = "JSON for programs"


def parser_for(verb: str, summary: str) -> argparse.ArgumentParser:
    """Return a parser whose complaints are UserErrors, and whose help ends with examples."""
    parser = argparse.ArgumentParser(
        prog=f"trainmover {verb}",
        description=f"{summary}.",
        epilog=examples_of(verb),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    complain_in_three_lines(parser)
    return parser


def which_run(parser: argparse.ArgumentParser) -> None:
    """--run-id, --run-dir and --json."""
    parser.add_argument("--run-id", default="", metavar="ID", help="which run, if several live")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="of a run started with it")
    parser.add_argument("--json", action="store_true", help=_JSON)


# --- to look --------------------------------------------------------------------------------------


def status(parser: argparse.ArgumentParser) -> None:
    which_run(parser)
    parser.add_argument("--watch", action="store_true", help="go on, in place: trainmover top")


def top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="look (1)")
    which_run(parser)


def events(parser: argparse.ArgumentParser) -> None:
    which_run(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    parser.add_argument("-n", "--last", type=int, metavar="N", help="only the last N lines")
    parser.add_argument("--all", action="store_true", help="also facts that have no sentence")
    parser.add_argument("--journal", type=Path, metavar="PATH", help="read a journal instead")


def incident(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", type=int, nargs="?", help="as trainmover status shows it")
    which_run(parser)
    parser.add_argument("--journal", type=Path, metavar="PATH", help="of a run that has ended")


def losses(parser: argparse.ArgumentParser) -> None:
    which_run(parser)
    parser.add_argument("--journal", type=Path, metavar="PATH", help="of a run that has ended")
    parser.add_argument("--rank", type=int, metavar="N", help="of this rank only")


def data(parser: argparse.ArgumentParser) -> None:
    which_run(parser)
    parser.add_argument("--journal", type=Path, metavar="PATH", help="of a run that has ended")
    parser.add_argument("--steps", action="store_true", help="every step's samples as well")


def checkpoints(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="what --checkpoint named")
    parser.add_argument("--export", type=Path, metavar="OUT", help="newest, for torch to read")
    parser.add_argument("--json", action="store_true", help=_JSON)


def report(parser: argparse.ArgumentParser) -> None:
    which_run(parser)
    parser.add_argument(
        "--journal", type=Path, action="append", metavar="PATH",
        help="of a run that has ended, and of those before it that are kept beside it; several: in "
        "this order, as one",
    )  # fmt: skip
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help=_REPORT_OUT)


def trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", type=int, nargs="?", help="of the incident; the last one if none")
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="as .json, or .svg for a picture of it"
    )
    parser.add_argument("--whole", action="store_true", help="the whole run, not one incident")
    parser.add_argument("--journal", type=Path, metavar="PATH", help="of a run that has ended")
    which_run(parser)


def dashboard(parser: argparse.ArgumentParser) -> None:
    which_run(parser)
    parser.add_argument("--viewer", action="store_true", help="one that may look only")
    parser.add_argument("--no-open", action="store_true", help="print the address")


def token(parser: argparse.ArgumentParser) -> None:
    which_run(parser)
    parser.add_argument("--viewer", action="store_true", help="one that may look only")


# --- to change a live run -------------------------------------------------------------------------


def machine(parser: argparse.ArgumentParser) -> None:
    """Name one."""
    parser.add_argument("machine", help="name of the machine, as trainmover status shows it")
    which_run(parser)


def kill(parser: argparse.ArgumentParser) -> None:
    machine(parser)
    parser.add_argument("--force", action="store_true", help=_FORCE)


def machines(parser: argparse.ArgumentParser, others: str) -> None:
    """Name one or several."""
    parser.add_argument("machine", help="name of the machine, as trainmover status shows it")
    parser.add_argument("also", nargs="*", default=[], metavar="machine", help=others)
    which_run(parser)


def move(parser: argparse.ArgumentParser) -> None:
    machine(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept with the incident")


def cordon(parser: argparse.ArgumentParser) -> None:
    machines(parser, "further ones")
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept, and shown in status")


def drain(parser: argparse.ArgumentParser) -> None:
    machines(parser, "further ones, at the same time")
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept, and shown in status")
    parser.add_argument("--deadline", default="", metavar="TIME", help=_DEADLINE)


def roll(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("machines", nargs="*", metavar="machine", help="these only; else all")
    which_run(parser)
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="so many at a time (1)")
    parser.add_argument("--hold", action="store_true", help=_HOLD)
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept with each move")
    parser.add_argument("--detach", action="store_true", help="do not wait for its end")


def place(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--from", dest="file", type=Path, metavar="FILE", help=_PLACE_FROM)
    how.add_argument("--by", metavar="FILE.py:FUNCTION", help=_PLACE_BY)
    which_run(parser)
    parser.add_argument("--every", default="", metavar="TIME", help="again and again: 10m, 1h")
    parser.add_argument("--dry-run", action="store_true", help="say what would move; move nothing")
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept with each move")
    parser.add_argument("--detach", action="store_true", help="do not wait for its end")


def plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("show", "stop", "continue"), default="show")
    which_run(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the events")


def uncordon(parser: argparse.ArgumentParser) -> None:
    machines(parser, "further ones")
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the events")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine", default="", metavar="NAME", help="name of the machine; the next free mN"
    )
    parser.add_argument(
        "--rack", type=name, default="", metavar="NAME", help="what it would be lost with"
    )
    which_run(parser)


def stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="", metavar="TEXT", help="shown where the run is")
    which_run(parser)


# --- others ---------------------------------------------------------------------------------------


def controller(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="the private directory of the run"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    for flag in _INHERITED:
        parser.add_argument(flag, type=int, default=-1, metavar="FD", help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, default=0, metavar="PID", help=argparse.SUPPRESS)


def demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=200, help="steps of each run (200)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the results")
    parser.add_argument("--data", type=Path, help="file to train on (default: Python's help texts)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, the report")


def simulate(parser: argparse.ArgumentParser) -> None:
    faults = "\n".join(f"  {name:<12}{what}" for name, what in NAMES.items())
    parser.epilog = f"faults:\n{faults}\n\n{parser.epilog}"
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, default=0, metavar="N", help="the only chance in it")
    seeds.add_argument("--seeds", metavar="A..B", help="all from A up to, not including, B")
    parser.add_argument("--machines", type=int, default=4, metavar="N", help="that hold ranks")
    parser.add_argument("--standbys", type=int, default=2, metavar="N", help="and others")
    parser.add_argument(
        "--nproc", type=int, metavar="N", help="workers a machine (1 or 2, by seed)"
    )
    parser.add_argument(
        "--minutes", type=float, default=1 / 3, metavar="M", help="of faults, before they stop"
    )
    parser.add_argument(
        "--mix",
        choices=MIXES,
        default="usual",
        help="biting: other deadlines, and outages a tenth to ten times as long",
    )
    parser.add_argument("--faults", metavar="NAME,...", help="these only; see below")
    parser.add_argument("--trace", action="store_true", help="show every event and what followed")
    parser.add_argument(
        "--coverage", action="store_true", help="show which transitions were not reached"
    )
    parser.add_argument("--json", action="store_true", help=_JSON)


def check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=int, default=3, metavar="N", help="turns of the loop that are repeated"
    )
    parser.add_argument(
        "--after", type=int, default=5, metavar="N", help="updates before that (default: 5)"
    )
    parser.add_argument(
        "--nproc", type=int, default=1, metavar="N", help="ranks of the script (default: 1)"
    )
    parser.add_argument(
        "--no-standby", action="store_true", help="repeat steps in place only, in one process"
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds for all ranks, each time"
    )
    parser.add_argument("--json", action="store_true", help=_JSON)
    parser.add_argument("-m", action="store_true", dest="module", help="script is a module's name")
    parser.add_argument("script", metavar="SCRIPT", help="file, or module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")


def doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--connect", metavar="HOST:PORT", help="look whether that controller can be reached"
    )
    parser.add_argument("--journal", type=Path, metavar="PATH", help="look at this place for one")
    parser.add_argument("--quick", action="store_true", help="do not load torch")
    parser.add_argument("--json", action="store_true", help=_JSON)


def completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="in place of trainmover.toml")
    parser.add_argument("--json", action="store_true", help=_JSON)


def version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object")
