"""`trainmover run [torchrun's options] [ours] script.py ...`: a job on this machine."""

from contextlib import AbstractContextManager, nullcontext

from trainmover.launch.nursery import NurseryProcess
from trainmover.launch.supervise import supervise

SUMMARY = "run a script on machines that can be replaced (in place of torchrun)"


def main(argv: list[str]) -> int:
    """The script's exit status; 130 after Ctrl-C, 143 after SIGTERM."""
    with _nursery(argv) as nursery:  # first: it imports torch in the time in which we do
        from trainmover.cli.flags import parse

        flags = parse(argv)
        options = flags.options
        return supervise(options, json=flags.json, nursery=None if options.worker else nursery)


def _nursery(argv: list[str]) -> AbstractContextManager[NurseryProcess | None]:
    """None where it is plain that workers are of another program: those are executed."""
    return nullcontext() if "--worker-program" in argv else NurseryProcess()
