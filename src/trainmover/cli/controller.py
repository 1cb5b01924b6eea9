"""`trainmover controller --run-dir DIR`: decides for the run of a directory, from its journal.

`trainmover run` starts it, and starts it again when it dies. By hand it is of use where the agents
live on other machines than their controller did, and still look for it.
"""

import argparse
from pathlib import Path

from trainmover.cli.options import parser_for
from trainmover.cli.run.screen import JsonScreen, Screen
from trainmover.errors import UserError
from trainmover.launch.controller.control import Inherited, control

SUMMARY = "take over a run whose controller has died"


def main(argv: list[str]) -> int:
    """The exit status of the job."""
    options = parser().parse_args(argv)
    if options.run_dir is None:
        raise UserError(
            "No run was named.",
            means="Nothing was done.",
            do="Give the directory it was started in: --run-dir DIR",
        )
    screen = JsonScreen() if options.json else Screen()
    inherited = Inherited(
        supervisor=options.supervisor,
        control=options.control,
        api=options.api,
        checkpoint_lock=options.checkpoint_lock,
        journal_memory=options.journal_memory,
        parent=options.parent,
    )
    return control(
        options.run_dir.resolve(),
        inherited,
        on_change=screen.notice,
        on_ready=screen.ready,
        on_end=screen.ended,
    )


def parser() -> argparse.ArgumentParser:
    parser = parser_for("controller", SUMMARY)
    add = parser.add_argument
    add("--run-dir", type=Path, metavar="DIR", help="the private directory of the run")
    add("--json", action="store_true", help="one JSON object a line on stdout")
    inherited = ("--supervisor", "--control", "--api", "--checkpoint-lock", "--journal-memory")
    for flag in inherited:
        add(flag, type=int, default=-1, metavar="FD", help=argparse.SUPPRESS)
    add("--parent", type=int, default=0, metavar="PID", help=argparse.SUPPRESS)
    return parser
