"""`python -m trainmover.agent`: the process that represents one machine in a job."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from trainmover.agent.config import WORKER_COMMAND, AgentConfig
from trainmover.agent.run import run_agent
from trainmover.errors import TrainmoverError, UserError
from trainmover.ids import MachineId
from trainmover.lifeline import die_with
from trainmover.nursery import Nursery
from trainmover.tls.files import absolute, all_or_none


def main(argv: list[str] | None = None, *, examples: str = "") -> int:
    """0: the job is over. 1: the machine is out, and why is on stderr. 2: a wrong call.

    examples: the end of the help text
    """
    options = parser(examples).parse_args(argv)
    if options.parent:
        die_with(options.parent)
    if os.getsid(0) != os.getpid() and os.getpgid(0) != os.getpid():
        os.setsid()
    try:
        asyncio.run(run_agent(_config(options)))
    except TrainmoverError as error:
        print(f"trainmover agent {options.machine}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    return 0


def _config(options: argparse.Namespace) -> AgentConfig:
    worker = tuple(json.loads(options.worker)) if options.worker else WORKER_COMMAND
    return AgentConfig(
        controller=options.controller,
        machine=MachineId(options.machine),
        nproc=options.nproc,
        standby=options.standby,
        token_file=options.token_file,
        directory=options.dir,
        role=options.role,
        shutdown_s=options.shutdown_timeout,
        controller_s=options.controller_timeout,
        worker=worker,
        rack=options.rack,
        nursery=None if options.nursery is None else Nursery.inherited(options.nursery),
        run=options.run,
        tls=all_or_none(options.tls_cert, options.tls_key, options.tls_ca),
    )


def parser(examples: str = "") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainmover agent",
        description="Be one machine of a run that was started on another host.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--controller", required=True, metavar="HOST:PORT", help="where the job's controller is")
    add("--machine", required=True, metavar="NAME", help="a name no other machine of the job has")
    add("--nproc", type=int, default=1, metavar="N", help="workers on this machine")
    add("--standby", action="store_true", help="join without ranks")
    add("--token-file", type=Path, required=True, metavar="FILE", help="the job's token")
    add("--tls-cert", type=absolute, default="", metavar="FILE", help="shown to who dials here")
    add("--tls-key", type=absolute, default="", metavar="FILE", help="that belongs to it")
    add(
        "--tls-ca", type=absolute, default="", metavar="FILE", help="whom to believe who is dialled"
    )
    add("--dir", type=Path, metavar="DIR", help="private to this machine; removed at the end")
    add("--rack", default="", metavar="NAME", help="machines of one rack may be lost together")
    add("--role", default="default", metavar="NAME", help="ROLE_NAME of the workers")
    add("--shutdown-timeout", type=float, default=5.0, metavar="S", help="from SIGTERM to SIGKILL")
    add("--controller-timeout", type=float, default=60.0, metavar="S", help="it may be away")
    add("--worker", metavar="JSON", help=argparse.SUPPRESS)
    add("--nursery", type=int, metavar="FD", help=argparse.SUPPRESS)
    add("--run", type=int, metavar="PID", help=argparse.SUPPRESS)  # so does the job
    add("--parent", type=int, metavar="PID", help=argparse.SUPPRESS)  # ends with it
    return parser


if __name__ == "__main__":
    sys.exit(main())
