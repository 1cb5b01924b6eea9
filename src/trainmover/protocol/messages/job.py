# SPDX-License-Identifier: Apache-2.0
"""What a job is, and what it can go on from. Pure."""

import msgspec

from trainmover.ids import Epoch, Rank, Slot, Step
from trainmover.protocol.deadlines import PATIENCE_S, RELAYS_ABOVE, Deadlines
from trainmover.protocol.messages.worker_facts import Recorded, Written


class LogSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where workers' output goes, in torchrun's terms.

    log_dir    None: no files
    redirects  stream bits per local rank (1 = stdout, 2 = stderr, 3 = both) written to files only
    tee        stream bits per local rank written to files and shown
    show       global ranks whose output is shown; None: all
    """

    log_dir: str | None = None
    redirects: dict[int, int] = {}
    tee: dict[int, int] = {}
    show: list[int] | None = None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; never changes while the job lives.

    argv             script or module name and its arguments
    machines         how many hold ranks; world size = machines * nproc
    store            host:port of the key-value store that groups meet in
    gpu_comm         what carries tensors of a GPU where the script asks for nccl: `staged`, through
                     host memory, or `nccl`
    restarts_max     how often the whole job may start again from nothing (rung 3)
    readiness        what standbys do beforehand: `held` (a second run waits at its first step),
                     `warm` (shadow runs only), `idle` (nothing: their processes are up)
    record           how large outputs of the first steps are kept: `moments` or `full`
    engine           that machines are wanted from; "": only who comes by itself
    wait_s           seconds a recovery waits for a machine when no standby is left
    patience_s       seconds for which a machine may be away, and an agent goes on alone
    deadlines        that the controller judges machines by, besides
    relays_above     machines; where there are more, some carry what others say
    state_bandwidth  bytes that a machine may send of its state in a second; 0: no limit
    snapshot_every   committed steps from one snapshot to the next; 0: none; None: where state is
                     held by one machine only, as often as costs a hundredth of the time
    snapshot_copies  on how many other machines each snapshot is kept: 1 or 2
    fingerprint_every  committed steps from one comparison of replicas to the next, the first ones
                     aside; 0: none
    exact            whether the job ends where a step that is made again gives other numbers
    on_divergence    what is done with a replica that differs from the others: `report` or `replace`
    watch            whether a rank that stands still is looked for
    false_alarms     so many a week are put up with in that
    stragglers       what is done about a machine that is slower: `off`, `watch` or `act`
    health           what is done about machines before they take ranks: `off`, `watch` (they are
                     examined, and what was found is said) or `act` (who fails takes none)
    anomalies        what is done about a machine that seems about to fail: `off`, `watch` or `act`
    notices          what is done when a machine says that it will be taken away: as before
    no_standby       when a lost machine cannot be replaced: `end`, or `checkpoint` and then end
    on_nan           what is done about a reported number that is none: `ignore`, `report` or `stop`
    checkpoint       absolute path of the folder that checkpoints are written to; "": none are
    checkpoint_every committed steps from one checkpoint to the next
    checkpoints_kept how many are kept
    resume           what the job goes on from; None: from the beginning
    script           xxh3-128 of the script's text, "" where that is no file
    python           version of Python
    auto             a script that never names trainmover is served by its training loop
    seed             of what the script draws unseeded, with the rank: see `state/rng.py`
    hash_seed        of Python's hashes, PYTHONHASHSEED of all workers: in which order they go
                     through a set of strings; "": each as it likes
    """

    run_id: str
    argv: list[str]
    module: bool = False
    machines: int = 1
    standbys: int = 0
    nproc: int = 1
    store: str = ""
    comm: str = "gloo"
    gpu_comm: str = "staged"
    restarts_max: int = 3
    readiness: str = "held"
    record: str = "moments"
    auto: bool = True
    engine: str = ""
    wait_s: int = 0
    patience_s: float = PATIENCE_S
    deadlines: Deadlines = Deadlines()
    relays_above: int = RELAYS_ABOVE
    state_bandwidth: int = 0
    snapshot_every: int | None = None
    snapshot_copies: int = 1
    fingerprint_every: int = 1000
    exact: bool = False
    on_divergence: str = "report"
    watch: bool = True
    false_alarms: float = 1.0
    stragglers: str = "watch"
    health: str = "off"
    anomalies: str = "watch"
    notices: str = "act"
    no_standby: str = "end"
    on_nan: str = "ignore"
    checkpoint: str = ""
    checkpoint_every: int = 1000
    checkpoints_kept: int = 3
    resume: "Checkpoint | None" = None
    script: str = ""
    python: str = ""
    seed: int = 0
    hash_seed: str = ""
    log: LogSpec = LogSpec()
    cwd: str = ""

    @property
    def world_size(self) -> int:
        return self.machines * self.nproc

    def ranks(self, slot: Slot) -> list[Rank]:
        return [Rank(slot * self.nproc + local) for local in range(self.nproc)]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A cut on disk: what a job needs to go on after `step`. Its manifest is this, as JSON.

    folder    the folder that the paths of its files begin in
    run_id    of the run that has written it, in `epoch`
    states    every rank's snapshot: the files that it is put together from. What ranks hold alike
              is one file
    records   of first steps, of those ranks that keep one
    compiled  what was compiled in them
    recorded  what every rank has said of its first steps
    the rest  as in `JobSpec`: a job that differs in any of it is another job
    """

    folder: str
    run_id: str
    step: Step
    epoch: Epoch
    argv: list[str]
    module: bool
    script: str
    machines: int
    nproc: int
    torch: str
    trainmover: str
    python: str
    states: dict[Rank, list[Written]]
    records: dict[Rank, Written]
    compiled: dict[Rank, Written]
    recorded: "list[Recorded]"
    seed: int = 0
    format: int = 1

    def path(self, written: Written) -> str:
        """Where a file of it lies."""
        return f"{self.folder}/{written.file}"

    @property
    def bytes(self) -> int:
        """Of all states together."""
        return sum({part.file: part.bytes for its in self.states.values() for part in its}.values())
