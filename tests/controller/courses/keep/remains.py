# SPDX-License-Identifier: Apache-2.0
"""What is left of the newest cut of a job, whatever is lost of it."""

from collections.abc import Iterable

from courses.trained import Trained
from trainmover.controller.events import Lost, MachinesLost
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

FULL = "it is full"


class Remains:
    """
    keeps    rank -> machines in whose vaults its snapshot of the newest cut is, the first one first
    process  rank -> where the process is that has taken it
    step     of that cut; 0: there is none
    gone     machines; down: those, and others whose processes are
    """

    def __init__(self, job: Trained) -> None:
        self.job, self.chance = job, job.chance
        self.keeps: dict[int, list[MachineId]] = {}
        self.process: dict[int, MachineId] = {}
        self.step = 0
        self.gone: set[MachineId] = set()
        self.down: set[MachineId] = set()
        self.spare = job.names[-1]
        job.trains()

    def cut(self, step: int, *, full: int | None = None) -> None:
        """In the vault of the machine behind, and maybe in one more. full: a rank whose vault has
        no room: its process alone has it."""
        job, seats = self.job, self.job.job.seats
        more = self.chance.choice(("", "next", "spare"))
        for rank in job.ranks:
            slot = rank // job.nproc
            first = seats[(slot + 1) % len(seats)]
            further = {"": None, "next": seats[(slot + 2) % len(seats)], "spare": self.spare}[more]
            name, local = job.at(rank)
            said = m.Snapped(
                rank=Rank(rank), epoch=job.job.epoch, step=Step(step), vault=f"{first}:1", bytes=7,
                cost_us=10, step_us=100_000, refused=FULL if rank == full else "",
                further=f"{further}:1" if further and rank != full else "",
            )  # fmt: skip
            job.says(name, local, said)
            two = [first, *([further] if further not in (None, first) else [])]
            self.keeps[rank] = two if rank != full else []
            self.process[rank] = name
        self.step = step

    @property
    def live(self) -> list[MachineId]:
        """Those with ranks whose processes are there."""
        return [name for name in self.job.job.seats if name not in self.down]

    def own(self, rank: int) -> bool:
        """Whether its own process is there, and has taken it."""
        name = self.job.job.seats[rank // self.job.nproc]
        return name == self.process.get(rank) and name not in self.down

    def kept(self, rank: int) -> list[MachineId]:
        return [name for name in self.keeps[rank] if name not in self.gone]

    def nowhere(self) -> list[int]:
        """Ranks whose snapshot is."""
        return [r for r in self.job.ranks if not self.kept(r) and self.process[r] in self.down]

    def lose(self, names: Iterable[MachineId]) -> None:
        job, names = self.job, list(names)
        job.told.clear()
        lost = [Lost(machine=name, why="it is dark", heard_us=job.now_us) for name in names]
        self.gone |= {*names}
        self.down |= {*names}
        job.hear(MachinesLost(at_us=job.now_us, lost=lost))
        if {*job.fenced()} != {*names}:
            raise Violation(f"{names} are lost, and shut out are {job.fenced()}")

    def ends_process(self, name: MachineId, local: int = 0) -> int:
        """Which one."""
        pid = self.job.pid(name, local)
        self.job.agent_says(name, m.WorkerExited(local_rank=local, pid=pid, code=-9))
        self.down |= {name} & {*self.job.job.seats}
        return pid
