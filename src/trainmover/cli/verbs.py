# SPDX-License-Identifier: Apache-2.0
"""The commands: what each is for, what it is given, and which module carries it out.

Those are loaded when they are needed: who asks for help, or has mistyped a flag, has an answer at
once.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from trainmover.agent import flags as agent_flags
from trainmover.cli import flags
from trainmover.cli.examples import examples_of
from trainmover.cli.run.parser import known_flags
from trainmover.cli.suggest import complain_in_three_lines


@dataclass(frozen=True)
class Verb:
    """module: it has `main(options) -> exit status`. flags: what its parser is given.

    parser  in place of one that is made here
    itself  it has `main(argv)`, and reads its arguments itself
    """

    summary: str
    module: str
    flags: Callable[[argparse.ArgumentParser], None] | None = None
    parser: Callable[[], argparse.ArgumentParser] | None = None
    itself: bool = False


_ASK = "trainmover.cli.steer.ask"


def _of_agent() -> argparse.ArgumentParser:
    parser = agent_flags.parser(examples_of("agent"))
    complain_in_three_lines(parser)
    return parser


VERBS = {
    "run": Verb(
        "run a script on machines that can be replaced (in place of torchrun)",
        "trainmover.cli.run.run",
        parser=known_flags,
        itself=True,
    ),
    "status": Verb(
        "show machines, ranks, steps and incidents of a live run",
        "trainmover.cli.watch.status",
        flags.status,
    ),
    "top": Verb(
        "show a run as it goes: machines, progress, what happens",
        "trainmover.cli.watch.top",
        flags.top,
    ),
    "standbys": Verb(
        "show what each standby is ready for, how it was proven and what a loss would cost",
        "trainmover.cli.watch.standbys",
        flags.which_run,
    ),
    "add": Verb("add a machine to a live run, as a standby", "trainmover.cli.steer.add", flags.add),
    "agent": Verb(
        "be one machine of a run that was started on another host",
        "trainmover.agent.__main__",
        parser=_of_agent,
    ),
    "move": Verb("move a machine's ranks to a standby while the job runs", _ASK, flags.move),
    "drain": Verb("cordon machines, and move their ranks to standbys", _ASK, flags.drain),
    "health": Verb("measure what a machine without ranks can do", _ASK, flags.machine),
    "cordon": Verb("let a machine take no ranks until it is uncordoned", _ASK, flags.cordon),
    "uncordon": Verb("let a cordoned machine take ranks again", _ASK, flags.uncordon),
    "roll": Verb(
        "have every machine give up its ranks once, some at a time",
        "trainmover.cli.steer.plans",
        flags.roll,
    ),
    "place": Verb(
        "give ranks to other machines, as a file or a function of yours says",
        "trainmover.cli.steer.plans",
        flags.place,
    ),
    "plan": Verb(
        "show a roll or a placement, stop it, or let it go on",
        "trainmover.cli.steer.plans",
        flags.plan,
    ),
    "kill": Verb("kill a machine, to see the job recover", "trainmover.cli.steer.kill", flags.kill),
    "stop": Verb(
        "end a live run in order, with one more checkpoint where some are written",
        "trainmover.cli.steer.stop",
        flags.stop,
    ),
    "events": Verb(
        "show what has happened, and what happens (--follow)",
        "trainmover.cli.watch.events",
        flags.events,
    ),
    "incident": Verb(
        "show all that is known of one incident: phases, verdict, certificates",
        "trainmover.cli.watch.incident",
        flags.incident,
    ),
    "report": Verb(
        "show where the time went: goodput, what was lost to which cause, downtimes",
        "trainmover.cli.report.report",
        flags.report,
    ),
    "trace": Verb(
        "write what every process did in an incident, for Perfetto or chrome://tracing",
        "trainmover.cli.report.trace",
        flags.trace,
    ),
    "dashboard": Verb(
        "open the page of a live run in a browser", "trainmover.cli.dashboard", flags.dashboard
    ),
    "token": Verb(
        "print a token for the HTTP API of a live run", "trainmover.cli.token", flags.token
    ),
    "memory": Verb(
        "show what is held in host memory: by kind for each rank, and for others",
        "trainmover.cli.watch.memory",
        flags.which_run,
    ),
    "losses": Verb(
        "write the committed losses of every step, bit for bit, as CSV or JSON",
        "trainmover.cli.watch.losses",
        flags.losses,
    ),
    "data": Verb(
        "show which samples each step used, and whether each came exactly once",
        "trainmover.cli.watch.data",
        flags.data,
    ),
    "checkpoints": Verb(
        "show checkpoints, and which are whole; or write one for torch to read",
        "trainmover.cli.watch.checkpoints",
        flags.checkpoints,
    ),
    "controller": Verb(
        "take over a run whose controller has died", "trainmover.cli.controller", flags.controller
    ),
    "demo": Verb(
        "train, move a machine, kill a machine, compare bit for bit",
        "trainmover.cli.demo.demo",
        flags.demo,
    ),
    "simulate": Verb(
        "let machines, links and the controller fail in a fake world, and check what it decides",
        "trainmover.cli.simulate",
        flags.simulate,
    ),
    "check": Verb(
        "run a script's first steps twice, here, and say what of it is carried and what differs",
        "trainmover.cli.check.check",
        flags.check,
    ),
    "doctor": Verb(
        "look whether a job could run here, and say what to mend",
        "trainmover.cli.doctor.doctor",
        flags.doctor,
    ),
    "completion": Verb(
        "write a script for the shell to complete commands and flags: bash, zsh or fish",
        "trainmover.cli.completion",
        flags.completion,
    ),
    "config": Verb(
        "show what a run started here takes from trainmover.toml and the environment",
        "trainmover.cli.run.config",
        flags.config,
    ),
    "version": Verb(
        "show the versions of trainmover, torch and Python",
        "trainmover.cli.version",
        flags.version,
    ),
}


def parser_of(verb: str) -> argparse.ArgumentParser:
    """Return the parser of a command's arguments; raises KeyError if there is none.

    Of `run` without torchrun's help, which torch would have to be loaded for.
    """
    one = VERBS[verb]
    if one.parser is not None:
        return one.parser()
    parser = flags.parser_for(verb, one.summary)
    if one.flags is not None:
        one.flags(parser)
    return parser
