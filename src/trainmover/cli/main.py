"""`trainmover VERB ...`. A verb is a module with a SUMMARY and `main(argv) -> exit status`.

Errors are three lines on stderr: what happened, what it means, what to type next. Exit status 2 is
the user's to mend, 1 is a job or a request that failed, and `run` ends with the script's own.
"""

import importlib
import sys
from types import ModuleType

from trainmover.errors import JobFailed, TrainmoverError, UserError
from trainmover.version import VERSION

VERBS = {
    "run": "trainmover.cli.run",
    "status": "trainmover.cli.status",
    "standbys": "trainmover.cli.standbys",
    "add": "trainmover.cli.add",
    "agent": "trainmover.cli.agent",
    "move": "trainmover.cli.move",
    "kill": "trainmover.cli.kill",
    "events": "trainmover.cli.events",
    "incident": "trainmover.cli.incident",
    "memory": "trainmover.cli.memory",
    "data": "trainmover.cli.data",
    "checkpoints": "trainmover.cli.checkpoints",
    "controller": "trainmover.cli.controller",
    "demo": "trainmover.cli.demo",
    "simulate": "trainmover.cli.simulate",
    "version": "trainmover.cli.version",
}
INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Exit status of one command."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        return _dispatch(argv)
    except JobFailed as error:
        return _complain(error, error.code)
    except TrainmoverError as error:
        return _complain(error, 2 if isinstance(error, UserError) else 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # else the interpreter complains on its way out
        return 1


def _dispatch(argv: list[str]) -> int:
    verb, rest = (argv[0], argv[1:]) if argv else ("", [])
    if verb in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if verb == "--version":
        verb = "version"
    if verb not in VERBS:
        raise UserError(
            f"There is no command {verb!r}." if verb else "No command was given.",
            means="Nothing was done.",
            do=f"Type one of: {', '.join(f'trainmover {name}' for name in VERBS)}",
        )
    status: int = _module(verb).main(rest)
    return status


def _module(verb: str) -> ModuleType:
    return importlib.import_module(VERBS[verb])


def _usage() -> str:
    lines = [f"  {verb:<13}{_module(verb).SUMMARY}" for verb in VERBS]
    return "\n".join(
        [
            f"trainmover {VERSION}: keeps a PyTorch job running while machines are replaced",
            "",
            "usage: trainmover COMMAND [...]      (trainmover COMMAND --help says more)",
            "",
            *lines,
        ]
    )


def _complain(error: TrainmoverError, code: int) -> int:
    print(f"trainmover: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
