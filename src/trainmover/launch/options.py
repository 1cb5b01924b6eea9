# SPDX-License-Identifier: Apache-2.0
"""What `trainmover run` was asked for."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from trainmover import communicators
from trainmover.launch.checkpoints import CheckpointOptions
from trainmover.protocol.deadlines import PATIENCE_S, RELAYS_ABOVE
from trainmover.protocol.messages import JobSpec, LogSpec
from trainmover.tls.files import TlsFiles

ENGINE_WAIT_S = 30 * 86400
"""For which a job with an engine stands without a machine: a queue may be long."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What to run and how. Defaults are those of `trainmover run`.

    journal     where to keep the journal; None: it goes with the run
    report      file for a report at the end; None: none
    notify_cmd  the shell's command to run at losses and the end; "": none
    progress    whether the screen says how far the run is
    token_file  a token to use; None: a fresh one
    api_bind    host:port of the API, for other hosts too; "": port `api_port` on loopback
    bind        host:port where machines on other hosts reach the run, which starts none then;
                "": all of them are on this host
    tls         whether what listens speaks TLS, with a certificate made for this run
    tls_files   given ones; None: none are given
    run_dir     the run's private directory; None: under TRAINMOVER_HOME
    record      how large outputs of the first steps are kept: `moments` or `full`
    readiness   of standbys: `held`, `warm` or `idle`
    patience_s  seconds for which a machine may be away
    relays_above  machines; where there are more, some carry what others say to the controller
    wait_s      seconds a recovery waits for a machine when no standby is left
    state_bandwidth  bytes that a machine may send of its state in a second; 0: no limit
    fingerprint_every  steps from one comparison of replicas to the next; 0: none
    exact          the job ends where a step that is made again gives other numbers
    on_divergence  of replicas: `report` or `replace`
    auto        whether a script that never names trainmover is served
    watch       whether a rank that stands still is looked for, and replaced
    false_alarms  so many a week are put up with in that
    health      what is done about machines before they take ranks: `off`, `watch` or `act`
    anomalies   what is done about a machine that seems about to fail: `off`, `watch` or `act`
    notices     of machines that will be taken away: `off`, `watch` or `act`
    stragglers  what is done about a machine that is slower than others: `off`, `watch` or `act`
    no_standby  what comes when a lost machine cannot be replaced: `end`, or `checkpoint` first
    on_nan      of a reported number that is none: `ignore`, `report` or `stop`
    snapshot_every  committed steps between snapshots; 0: none; None: as needed
    snapshot_copies  on how many other machines each is kept: 1 or 2
    seed        of what the script draws unseeded; 0: another one for each run
    checkpoints  where to, how often, and what to go on from
    shutdown_s  from SIGTERM to SIGKILL for workers
    engine      that starts the machines: `local` or `slurm`; "": they are started with the run
    engine_args  further arguments for it
    worker      another worker program, for tests; empty: the real one
    """

    argv: list[str]
    module: bool = False
    machines: int = 1
    standbys: int = 0
    nproc: int = 1
    comm: str = field(default_factory=communicators.default)
    gpu_comm: str = communicators.STAGED
    restarts_max: int = 3
    record: str = "moments"
    readiness: str = "held"
    wait_s: int = 0
    patience_s: float = PATIENCE_S
    relays_above: int = RELAYS_ABOVE
    state_bandwidth: int = 0
    fingerprint_every: int = 1000
    exact: bool = False
    on_divergence: str = "report"
    auto: bool = True
    watch: bool = True
    false_alarms: float = 1.0
    stragglers: str = "watch"
    health: str = "off"
    anomalies: str = "watch"
    notices: str = "act"
    no_standby: str = "end"
    on_nan: str = "ignore"
    snapshot_every: int | None = None
    snapshot_copies: int = 1
    seed: int = 0
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    log: LogSpec = field(default_factory=LogSpec)
    cwd: str = ""
    run_id: str = ""
    journal: Path | None = None
    report: Path | None = None
    notify_cmd: str = ""
    progress: bool = True
    api_port: int = 0
    api_bind: str = ""
    bind: str = ""
    token_file: Path | None = None
    tls: bool = False
    tls_files: TlsFiles | None = None
    run_dir: Path | None = None
    shutdown_s: float = 5.0
    role: str = "default"
    engine: str = ""
    engine_args: tuple[str, ...] = ()
    worker: tuple[str, ...] = ()


def spec_of(options: RunOptions, run_id: str) -> JobSpec:
    """The job that was asked for; its store is not known yet."""
    return JobSpec(
        run_id=run_id,
        argv=options.argv,
        module=options.module,
        machines=options.machines,
        standbys=options.standbys,
        nproc=options.nproc,
        comm=options.comm,
        gpu_comm=options.gpu_comm,
        restarts_max=options.restarts_max,
        record=options.record,
        fingerprint_every=options.fingerprint_every,
        exact=options.exact,
        on_divergence=options.on_divergence,
        auto=options.auto,
        watch=options.watch,
        false_alarms=options.false_alarms,
        stragglers=options.stragglers,
        health=options.health,
        anomalies=options.anomalies,
        notices=options.notices,
        no_standby=options.no_standby,
        on_nan=options.on_nan,
        readiness=options.readiness,
        engine=options.engine,
        wait_s=options.wait_s or (ENGINE_WAIT_S if options.engine else 0),
        patience_s=options.patience_s,
        relays_above=options.relays_above,
        state_bandwidth=options.state_bandwidth,
        snapshot_every=options.snapshot_every,
        snapshot_copies=options.snapshot_copies,
        seed=options.seed or secrets.randbits(32),
        log=options.log,
        cwd=options.cwd or str(Path.cwd()),
    )
