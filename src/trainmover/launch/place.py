# SPDX-License-Identifier: Apache-2.0
"""What a run has before any of its processes: a private directory, a token, sockets, a folder.

Everything that can be wrong with what was asked for is found out here. All of it is held by the
process that started the run, for as long as the run lives: what listens there may come and go.
"""

import os
import shlex
import socket
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path

from trainmover.errors import UserError
from trainmover.journal.aside import keep_aside
from trainmover.launch.checkpoints import prepare
from trainmover.launch.options import RunOptions, spec_of
from trainmover.launch.runs import Run, RunDirectory, process_started
from trainmover.launch.tls import ANY, LOOPBACK, certified
from trainmover.protocol.messages import JobSpec
from trainmover.server.checkpoints.folder import CheckpointFolder
from trainmover.server.run import bind
from trainmover.tls.files import TlsFiles
from trainmover.token_file import read_token


@dataclass(frozen=True)
class RunPlace:
    """Use `make`.

    control, api  bound sockets: for agents, for the HTTP API
    spec          but for its store
    checkpoints   the folder for them, locked; None: there are none
    notes         what the user should know from the start
    """

    directory: RunDirectory
    token_file: Path
    token: bytes
    control: socket.socket
    api: socket.socket
    spec: JobSpec
    checkpoints: CheckpointFolder | None
    notes: list[str]
    run: Run

    @classmethod
    def make(cls, options: RunOptions, stack: AsyncExitStack) -> "RunPlace":
        """Made now, unmade with `stack`. Raises UserError."""
        anew = options.checkpoints.again
        if options.run_dir is not None:
            _check_apart(options, options.run_dir.resolve())
        directory = RunDirectory.create(options.run_id, options.run_dir, anew=anew)
        stack.callback(directory.remove)
        token_file, token = _token(options, directory)
        tls = certified(options, directory)
        control = bind(options.bind or "127.0.0.1:0", "The controller")
        stack.callback(control.close)
        api = bind(options.api_bind or f"127.0.0.1:{options.api_port}", "The API")
        stack.callback(api.close)
        held = stack.enter_context(ExitStack())
        run = _run(options, directory, token_file, control, api, tls.files)
        prepared = prepare(options.checkpoints, spec_of(options, directory.run_id), held)
        notes = [*prepared.notes, *_journal_aside(options)]
        return cls(
            directory=directory,
            token_file=token_file,
            token=token,
            control=control,
            api=api,
            spec=prepared.spec,
            checkpoints=prepared.folder,
            notes=[*notes, *tls.notes, *directory.findable(), *_invitation(options, run)],
            run=run,
        )


def _check_apart(options: RunOptions, run_dir: Path) -> None:
    """Raise UserError if something that is to stay would lie in what is removed at the end."""
    stays = {
        "The working directory": Path.cwd(),
        "--journal": options.journal,
        "--report": options.report,
        "--checkpoint": options.checkpoints.folder,
        "--log-dir": None if options.log.log_dir is None else Path(options.log.log_dir),
    }
    for what, path in stays.items():
        if path is not None and path.resolve().is_relative_to(run_dir):
            raise UserError(
                f"{what} ({path}) lies in the run's private directory, {run_dir}.",
                means="That is removed when the run ends; nothing was started.",
                do="Give --run-dir a folder of its own, or leave it away.",
            )


def _token(options: RunOptions, directory: RunDirectory) -> tuple[Path, bytes]:
    if options.token_file is None:
        return directory.token_file, directory.write_token()
    return options.token_file.resolve(), read_token(options.token_file)


def _journal_aside(options: RunOptions) -> list[str]:
    """Of an earlier run of the same call, if there may be one."""
    if not options.checkpoints.again or options.journal is None:
        return []
    aside = keep_aside(options.journal)
    return [] if aside is None else [f"the journal of the run before this one is kept: {aside}"]


def _invitation(options: RunOptions, run: Run) -> list[str]:
    """What to type on other hosts, where machines come from there."""
    if not options.bind or options.engine:
        return []
    command = ["trainmover", "agent", "--controller", run.controller]
    command += ["--token-file", run.token_file]
    command += ["--nproc", str(run.nproc)] if run.nproc > 1 else []
    command += ["--role", run.role] if run.role != "default" else []
    command += run.tls.flags() if run.tls is not None else []
    spare, count = options.standbys, options.machines + options.standbys
    last = f"; the last {spare} with --standby" if spare else ""
    return [
        f"waits for {count} machine{'s' * (count > 1)}. On each host, where the script lies in the "
        f"same folder, with these files and another name{last}:\n"
        f"  {shlex.join(command)} --machine m1"
    ]


def _run(
    options: RunOptions,
    directory: RunDirectory,
    token_file: Path,
    control: socket.socket,
    api: socket.socket,
    tls: TlsFiles | None,
) -> Run:
    started = process_started(os.getpid())
    assert started is not None
    journal = options.journal or directory.path / "journal.sqlite"
    return Run(
        run_id=directory.run_id,
        api_url=f"{'https' if tls else 'http'}://{_dialled(options, api)}",
        api_bind=_bound(options, api),
        host=socket.gethostname(),
        pid=os.getpid(),
        started=started,
        directory=str(directory.path),
        token_file=str(token_file),
        journal=str(journal.parent.resolve() / journal.name),  # No link is followed to it.
        progress=options.progress,
        report="" if options.report is None else str(options.report.resolve()),
        controller="{}:{}".format(*control.getsockname()),
        nproc=options.nproc,
        role=options.role,
        shutdown_s=options.shutdown_s,
        worker=options.worker,
        engine=options.engine,
        engine_args=options.engine_args,
        tls=tls,
    )


def _bound(options: RunOptions, api: socket.socket) -> str:
    host = options.api_bind.rpartition(":")[0]
    return f"{host}:{api.getsockname()[1]}" if host else ""


def _dialled(options: RunOptions, api: socket.socket) -> str:
    """By commands on this host."""
    given = options.api_bind.rpartition(":")[0]
    host, port = api.getsockname()
    return f"{LOOPBACK[0] if host == ANY else given or host}:{port}"
