# SPDX-License-Identifier: Apache-2.0
"""Options of a run, from a command line of `trainmover run`."""

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmover import communicators
from trainmover.cli.run import flag_values
from trainmover.cli.run.misplaced import misplaced_text
from trainmover.cli.run.parser import look, parser, refuse
from trainmover.cli.run.rates import bytes_a_second
from trainmover.errors import UserError
from trainmover.launch.checkpoints import CheckpointOptions
from trainmover.launch.options import RunOptions
from trainmover.protocol.messages import LogSpec
from trainmover.tls.files import all_or_none


@dataclass(frozen=True)
class RunFlags:
    """A parsed command line. json: for programs; slip: what is probably not meant so, or ""."""

    options: RunOptions
    json: bool
    slip: str = ""


def parse(argv: list[str]) -> RunFlags:
    """Raises UserError for what cannot be honoured."""
    look(argv)
    flags = parser().parse_args(argv)
    refuse(flags)
    nproc = flag_values.nproc(flags.nproc_per_node)
    script = flags.training_script
    again = flag_values.again(flags.resume, flags.checkpoint)
    options = RunOptions(
        argv=[script, *flags.training_script_args],
        module=flags.module,
        machines=flag_values.machines(flags.nnodes, flags.machines),
        standbys=flag_values.at_least(0, flags.standbys, "--standbys"),
        nproc=nproc,
        comm=communicators.checked(flags.comm),
        gpu_comm=communicators.checked_gpu(flags.gpu_comm, flags.comm),
        restarts_max=flag_values.at_least(0, flags.max_restarts, "--max-restarts"),
        record=flag_values.record(flags.record),
        readiness=flag_values.readiness(flags.readiness),
        wait_s=flag_values.at_least(0, flags.wait_for_machine, "--wait-for-machine"),
        patience_s=flag_values.patience(flags.patience),
        relays_above=flag_values.at_least(0, flags.relays_above, "--relays-above"),
        state_bandwidth=bytes_a_second(flags.state_bandwidth, "--state-bandwidth"),
        fingerprint_every=flag_values.at_least(0, flags.fingerprint_every, "--fingerprint-every"),
        exact=flag_values.is_exact(flags.numbers),
        on_divergence=flag_values.on_divergence(flags.on_divergence),
        auto=not flags.no_auto,
        watch=not flags.no_watch,
        false_alarms=flag_values.false_alarms(flags.false_alarms),
        stragglers=flag_values.stragglers(flags.stragglers),
        health=flag_values.health(flags.health),
        anomalies=flag_values.anomalies(flags.anomalies),
        notices=flag_values.notices(flags.notices),
        no_standby=flag_values.no_standby(
            flags.no_standby, saves=bool(flags.checkpoint or flags.resume)
        ),
        on_nan=flag_values.on_nan(flags.on_nan),
        snapshot_every=flag_values.snapshots(flags.snapshots),
        snapshot_copies=flags.snapshot_copies,
        checkpoints=CheckpointOptions(
            folder=flags.checkpoint,
            every=flag_values.at_least(1, flags.checkpoint_every, "--checkpoint-every"),
            keep=flag_values.at_least(1, flags.keep_checkpoints, "--keep-checkpoints"),
            resume=None if again else flags.resume,
            again=again,
        ),
        log=_log(flags, nproc),
        run_id=flags.run_id,
        journal=flags.journal,
        notify_cmd=flags.notify_cmd,
        progress=not flags.no_progress,
        report=flag_values.report(flags.report),
        api_port=flag_values.port(flags.api_port),
        api_bind=flag_values.api_bind(
            flags.api_bind, tls=flags.tls or bool(flags.tls_cert), port_given=bool(flags.api_port)
        ),
        bind=flag_values.bind(
            flags.bind or (flag_values.address_here() if flags.engine == "slurm" else "")
        ),
        engine=flag_values.engine(flags.engine),
        engine_args=flag_values.engine_args(flags.engine_args, flags.engine),
        token_file=flags.token_file,
        tls=flags.tls,
        tls_files=all_or_none(flags.tls_cert, flags.tls_key, flags.tls_ca),
        run_dir=flags.run_dir,
        shutdown_s=flag_values.shutdown_s(flags.shutdown_timeout),
        role=flags.role,
        worker=tuple(json.loads(flags.worker_program)),
    )
    slip = "" if flags.module else misplaced_text(script, flags.training_script_args)
    return RunFlags(options, flags.json, slip)


def _log(flags: argparse.Namespace, nproc: int) -> LogSpec:
    """torchrun's flags about output. All ranks are shown unless something else is asked for."""
    redirects, tee = _streams(flags.redirects, nproc), _streams(flags.tee, nproc)
    shown: list[int] | None = None
    if flags.local_ranks_filter:
        wanted = _numbers(flags.local_ranks_filter)
        machines = flag_values.machines(flags.nnodes, flags.machines)
        shown = [slot * nproc + local for slot in range(machines) for local in wanted]
        redirects |= {local: bits for local, bits in tee.items() if local not in wanted}
        tee = {local: bits for local, bits in tee.items() if local in wanted}
    log_dir = flags.log_dir
    if log_dir is None and (redirects or tee):
        log_dir = tempfile.mkdtemp(prefix="trainmover_logs_")
    log_dir = None if log_dir is None else str(Path(log_dir).resolve())
    return LogSpec(log_dir=log_dir, redirects=redirects, tee=tee, show=shown)


def _streams(given: str, nproc: int) -> dict[int, int]:
    """`3` for all local ranks or `0:1,1:3`, as torchrun has it."""
    if given == "0":
        return {}  # Without torch.
    from torch.distributed.elastic.multiprocessing import Std

    try:
        parsed: Any = Std.from_str(given)
    except ValueError as error:
        raise UserError(
            f"{given} does not say which streams: {error}.",
            means="Nothing was started.",
            do="0 none, 1 stdout, 2 stderr, 3 both; or for some local ranks 0:1,1:3",
        ) from error
    by_rank = parsed if isinstance(parsed, dict) else dict.fromkeys(range(nproc), parsed)
    return {local: int(std) for local, std in by_rank.items() if int(std)}


def _numbers(given: str) -> list[int]:
    try:
        return [int(part) for part in given.split(",")]
    except ValueError as error:
        raise UserError(
            f"--local-ranks-filter {given} is not a list of numbers.",
            means="Nothing was started.",
            do="For example --local-ranks-filter 0,1",
        ) from error
