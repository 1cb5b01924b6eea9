"""`trainmover agent`: this host is one machine of a run that was started on another with --bind."""

import argparse

from trainmover.agent.__main__ import main as serve
from trainmover.agent.__main__ import parser as parser_of_agent
from trainmover.cli.examples import examples_of

SUMMARY = "be one machine of a run that was started on another host"


def parser() -> argparse.ArgumentParser:
    return parser_of_agent(examples_of("agent"))


def main(argv: list[str]) -> int:
    """0: the job is over. 1: the machine is out, and why is on stderr. 2: a wrong call."""
    return serve(argv, examples=examples_of("agent"))
