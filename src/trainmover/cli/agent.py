"""`trainmover agent`: this host is one machine of a run that was started on another with --bind."""

from trainmover.agent.__main__ import main as serve

SUMMARY = "be one machine of a run that was started on another host"


def main(argv: list[str]) -> int:
    """0: the job is over. 1: the machine is out, and why is on stderr. 2: a wrong call."""
    return serve(argv)
