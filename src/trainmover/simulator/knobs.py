# SPDX-License-Identifier: Apache-2.0
"""What a world is like; whatever nobody sets is as in the usual job."""

from dataclasses import dataclass

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.checkpoint import published_name
from trainmover.protocol.deadlines import PATIENCE_S
from trainmover.protocol.messages import Checkpoint, JobSpec, Recorded, Written
from trainmover.simulator.deadlines import with_deadlines
from trainmover.version import VERSION

FOLDER, TORCH, OTHER_TORCH = "/kept", "2.9", "2.8"


@dataclass(frozen=True)
class Knobs:
    """Those of the job are as in its spec, but for these:

    steps      of the script            stages     how many programs, slot by slot
    snapshots  steps from cut to cut    copies     of each, on other machines
    rounds     committed steps from one to the next; 0: there are none
    step_us    that a step takes at most; half of it at least
    once       machines on which a process runs the script once
    unfit      machine and program that its sandbox cannot run
    old        machines whose agent is of another version of trainmover
    others     machines that have another torch
    sick       machines that fail every examination
    alone      no two ranks hold the same state
    refill     a machine that is gone for good is replaced by a new one
    engine     how often the engine errs that starts the machines; None: there is no engine
    racks      how many, of which each machine is in one; 0: nothing is known of them
    corrupts   how often a joiner receives what was not sent
    lacks      how often it lacks what was lost with its rank
    fills      machines whose memory gets full; tardy: whose agents speak late now and then
    length     steps that the script is believed to make; 0: nobody knows
    disk_us    for which work on checkpoints takes, by chance
    resumes    step of a checkpoint that the job goes on from; 0: it begins anew
    deadlines  other ones than usual, in seconds (`simulator.deadlines`); None: the usual ones
    """

    machines: int = 4
    standbys: int = 2
    nproc: int = 1
    steps: int = 10**9
    step_us: int = 100_000
    stages: int = 1
    once: tuple[str, ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()
    old: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    alone: bool = False
    wait_s: int = 60
    relays_above: int = 256
    snapshots: int | None = None
    checkpoints: int = 0
    refill: bool = True
    engine: float | None = None
    racks: int = 0
    copies: int = 1
    rounds: int = 0
    on_divergence: str = "report"
    on_nan: str = "ignore"
    stragglers: str = "off"
    health: str = "off"
    anomalies: str = "watch"
    notices: str = "act"
    sick: tuple[str, ...] = ()
    no_standby: str = "end"
    corrupts: float = 0.0
    lacks: float = 0.0
    disk_us: tuple[int, int] = (1_000, 50_000)
    length: int = 0
    readiness: str = "held"
    fills: tuple[str, ...] = ()
    tardy: tuple[str, ...] = ()
    restarts_max: int = 50
    watch: bool = True
    resumes: int = 0
    patience_s: float = PATIENCE_S
    deadlines: dict[str, float] | None = None

    def spec(self, seed: int, store: str) -> JobSpec:
        """Of the job."""
        spec = JobSpec(
            run_id=f"seed {seed}",
            argv=["train.py"],
            machines=self.machines,
            standbys=self.standbys,
            nproc=self.nproc,
            store=store,
            restarts_max=self.restarts_max,
            watch=self.watch,
            resume=self._before() if self.resumes else None,
            engine="" if self.engine is None else "simulated",
            wait_s=self.wait_s,
            relays_above=self.relays_above,
            snapshot_every=self.snapshots,
            checkpoint=FOLDER if self.checkpoints else "",
            checkpoint_every=self.checkpoints or 1000,
            snapshot_copies=self.copies,
            fingerprint_every=self.rounds,
            on_divergence=self.on_divergence,
            on_nan=self.on_nan,
            stragglers=self.stragglers,
            health=self.health,
            anomalies=self.anomalies,
            notices=self.notices,
            readiness=self.readiness,
            no_standby=self.no_standby if self.checkpoints else "end",
            patience_s=self.patience_s,
        )
        return with_deadlines(spec, self.deadlines)

    def program(self, rank: Rank) -> str:
        """What the script does there."""
        return f"p{rank // self.nproc % self.stages}"

    def recorded(self, rank: Rank, step: Step) -> Recorded:
        """What a rank says of its first steps."""
        digest = f"d{rank}" if self.alone else "d"
        trace = self.program(rank)
        return Recorded(
            rank=rank, step=step, trace=trace, digest=digest, bytes=1, length=self.length
        )

    def _before(self) -> Checkpoint:
        """What an earlier run of the job has written."""
        step, ranks = Step(self.resumes), [Rank(rank) for rank in range(self.machines * self.nproc)]
        return Checkpoint(
            folder=FOLDER,
            run_id="earlier",
            step=step,
            epoch=Epoch(7),
            argv=["train.py"],
            module=False,
            script="",
            machines=self.machines,
            nproc=self.nproc,
            torch=TORCH,
            trainmover=VERSION,
            python="",
            states={rank: [Written(f"{published_name(step)}/{rank}.7", 1, "")] for rank in ranks},
            records={},
            compiled={},
            recorded=[self.recorded(rank, Step(3)) for rank in ranks],
        )
