# SPDX-License-Identifier: Apache-2.0
"""`python -m trainmover.agent`: the process that represents one machine in a job."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from trainmover.agent import flags
from trainmover.agent.config import WORKER_COMMAND, AgentConfig
from trainmover.agent.run import run_agent
from trainmover.agent.signs import KERNEL_LOG
from trainmover.descriptors import raise_limit
from trainmover.errors import TrainmoverError, UserError
from trainmover.escaping import escape
from trainmover.fork_server import ForkServer
from trainmover.ids import MachineId
from trainmover.lifeline import die_with
from trainmover.tls.files import all_or_none
from trainmover.tracebacks import escape_tracebacks


def main(options: argparse.Namespace | None = None) -> int:
    """0: the job is over. 1: the machine is out, and why is on stderr. 2: a wrong call.

    options: by default those of this process's command line
    """
    if options is None:
        escape_tracebacks()
        options = flags.parser().parse_args()
    if options.parent:
        die_with(options.parent)
    raise_limit()
    if os.getsid(0) != os.getpid() and os.getpgid(0) != os.getpid():
        os.setsid()
    try:
        asyncio.run(run_agent(_config(options)))
    except TrainmoverError as error:
        print(escape(f"trainmover agent {options.machine}: {error}"), file=sys.stderr)
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
        notice_s=options.notice,
        notice_file=options.notice_file,
        notice_from=options.notice_from,
        kernel_log=_kernel_log(options),
        worker=worker,
        rack=options.rack,
        fork_server=None
        if options.fork_server is None
        else ForkServer.inherited(options.fork_server),
        alone=options.alone,
        run=options.run,
        tls=all_or_none(options.tls_cert, options.tls_key, options.tls_ca),
    )


def _kernel_log(options: argparse.Namespace) -> Path | None:
    """The machines of a run on one host have one kernel: what that says is about none of them."""
    if options.kernel_log is not None:
        return Path(options.kernel_log)
    return None if options.run else KERNEL_LOG


if __name__ == "__main__":
    sys.exit(main())
