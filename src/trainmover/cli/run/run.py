# SPDX-License-Identifier: Apache-2.0
"""`trainmover run [torchrun's options] [ours] script.py ...`: a job on this machine."""

import importlib.util
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from trainmover.cli.output import say
from trainmover.cli.run.parser import look
from trainmover.cli.run.settings import with_settings
from trainmover.errors import UserError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from trainmover.launch.fork_server import ForkServerProcess


def main(argv: list[str]) -> int:
    """Return the script's exit status; 130 after Ctrl-C, 143 after SIGTERM."""
    argv = with_settings(argv)
    _look(argv)
    with _fork_server(argv) as fork_server:  # first: it imports torch in the time in which we do
        from trainmover.cli.run.flags import parse
        from trainmover.launch.supervise import supervise

        flags = parse(argv)
        options = flags.options
        if flags.slip:
            say(f"trainmover: {flags.slip}", to=sys.stderr, flush=True)
        return supervise(
            options, json=flags.json, fork_server=None if options.worker else fork_server
        )


def _look(argv: list[str]) -> None:
    """Raises UserError for what need not wait for torch, or is that there is none."""
    look(argv)
    if importlib.util.find_spec("torch") is None:
        raise UserError(
            "There is no torch in this Python.",
            means="Nothing was started.",
            do="pip install trainmover brings it along; or use the Python that has it.",
        )


def _fork_server(argv: list[str]) -> "AbstractContextManager[ForkServerProcess | None]":
    """None where it is plain that workers are of another program: those are executed."""
    if "--worker-program" in argv:
        return nullcontext()
    from trainmover.launch.fork_server import ForkServerProcess

    return ForkServerProcess()
