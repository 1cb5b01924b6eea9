# SPDX-License-Identifier: Apache-2.0
"""`trainmover VERB ...`: see `verbs`. `help exit-codes` has what each exit status says.

Errors are three lines on stderr: what happened, what it means, what to type next. Exit status 2 is
the user's to mend, 1 is a job or a request that failed, and `run` ends with the script's own.
"""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainmover.cli.exit_codes import FAILED, INTERRUPTED, WRONG_CALL, table
from trainmover.cli.output import say
from trainmover.cli.plain import write_plainly
from trainmover.cli.suggest import did_you_mean
from trainmover.cli.verbs import VERBS, parser_of
from trainmover.errors import JobFailed, TrainmoverError, UserError
from trainmover.outlet import open_standard_streams
from trainmover.tracebacks import escape_tracebacks
from trainmover.version import VERSION

_EXIT_CODES = "exit-codes"
UNWRITTEN = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENXIO}
"""What a write to a screen, a pipe or a file fails with; of a file with a name, it is another's."""


def main(argv: list[str] | None = None) -> int:
    """Exit status of one command."""
    open_standard_streams()
    write_plainly()
    if argv is None:  # This process is ours alone.
        escape_tracebacks()
        argv = sys.argv[1:]
    try:
        status = _dispatch(argv)
        sys.stdout.flush()
        return status
    except JobFailed as error:
        return _complain(error, error.code)
    except TrainmoverError as error:
        return _complain(error, WRONG_CALL if isinstance(error, UserError) else FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITTEN:
            raise
        return _unwritten(error)


def _unwritten(error: OSError) -> int:
    """What was to be shown cannot be: a reader that has gone (`| head`) need not be told why."""
    for stream in (sys.stdout, sys.stderr)[: 2 if error.errno == errno.EPIPE else 1]:
        with suppress(OSError):  # Else the interpreter tries again, and complains, on its way out.
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
    why = f"The output could not be written: {error.strerror}."
    means = "What was asked for was done, as far as it had come."
    return _complain(
        TrainmoverError(why, means=means, do="Have it go where there is room."), FAILED
    )


def _dispatch(argv: list[str]) -> int:
    verb, rest = (argv[0], argv[1:]) if argv else ("", [])
    if verb in ("-h", "--help", "help"):
        return _help(rest)
    if verb == "--version":
        verb = "version"
    if verb not in VERBS:
        meant = did_you_mean(verb, VERBS)
        raise UserError(
            f"There is no command {verb!r}." if verb else "No command was given.",
            means="Nothing was done.",
            do=f"{meant} Type one of: {', '.join(f'trainmover {name}' for name in VERBS)}".lstrip(),
        )
    if VERBS[verb].itself:
        return _main_of(verb)(rest)
    options = parser_of(verb).parse_args(rest, argparse.Namespace(verb=verb))
    return _main_of(verb)(options)


def _help(about: list[str]) -> int:
    """Show the help of everything, of one command, or of exit codes."""
    if verb := next((word for word in about if word in VERBS), ""):
        return _dispatch([verb, "--help"])
    if about == [_EXIT_CODES]:
        say(f"what the exit status of a command says\n\n{table()}")
        return 0
    if about:
        meant = did_you_mean(about[0], [*VERBS, _EXIT_CODES])
        raise UserError(
            f"There is no help on {about[0]!r}.",
            means="Nothing was done.",
            do=f"{meant} Type trainmover help, help COMMAND or help {_EXIT_CODES}".lstrip(),
        )
    say(_usage())
    return 0


def _main_of(verb: str) -> Callable[[Any], int]:
    main: Callable[[Any], int] = importlib.import_module(VERBS[verb].module).main
    return main


def _usage() -> str:
    lines = [f"  {verb:<13}{one.summary}" for verb, one in VERBS.items()]
    return "\n".join(
        [
            f"trainmover {VERSION}: keeps a PyTorch job running while machines are replaced",
            "",
            "usage: trainmover COMMAND [...]      (trainmover COMMAND --help says more)",
            "",
            *lines,
            "",
            f"trainmover help {_EXIT_CODES} has what each exit status says",
        ]
    )


def _complain(error: TrainmoverError, code: int) -> int:
    with suppress(OSError):
        say(f"trainmover: {error}", to=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
