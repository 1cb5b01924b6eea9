# SPDX-License-Identifier: Apache-2.0
"""A job that trains, of whose ranks one holds something else from some step on, and is found out.

What is done follows from who is wrong, and from what that proves: a machine whose memory has
flipped a bit gives up its ranks, for as long as others hold what it ought to, and gets none again;
nobody goes for what the script may have done. And who is lost is taken over from those alone that
are believed.
"""

import random
import struct
import zlib

from courses.trained import SECOND_US, Trained
from trainmover.controller.effects import End, Send
from trainmover.controller.events import CordonRequested, Lost, MachinesLost, MoveRequested
from trainmover.controller.state import Incident, Kind, Outcome
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

SECTIONS = (("w0", "w1", "w2", "w3"), ("mean",), ("count",))
PATHS = [path for section in SECTIONS for path in section]
EVERY, TRIES = 10, 3


class Job(Trained):
    """
    wrong     what flipped bits have made of tensors: rank -> path -> of which step
    together  ranks that hold the same
    fails     moves up to this epoch come to nothing
    tells     what a joiner says in the place of its state
    """

    def __init__(self, chance: random.Random, **knobs: object) -> None:
        self.wrong: dict[int, dict[str, int]] = {}
        self.together = [0]
        self.fails = 0
        self.tells: dict[int, m.Unproven] = {}
        known: dict[str, object] = {
            "machines": chance.choice((3, 4)), "standbys": 2, "snapshot_every": 0,
            "nproc": chance.choice((1, 1, 2)), "on_divergence": "replace",
        }  # fmt: skip
        super().__init__(chance, **{**known, **knobs})
        self.trains()
        self.log.clear()

    def place(self, rank: int) -> MachineId:
        return self.job.seats[rank // self.nproc]

    def says(self, name: MachineId, local: int, fact: object) -> None:
        match fact:
            case m.Prepared(rank=rank, epoch=epoch) if epoch <= self.fails:
                fact = m.Prepared(rank=rank, epoch=epoch, reason="it was not nice")
            case m.Loaded(rank=rank) if rank in self.tells:
                told = self.tells.pop(rank)
                fact = m.Unproven(
                    rank=rank, epoch=fact.epoch, holders=told.holders, unlike=told.unlike
                )
            case m.Switched(rank=rank) if rank in self.tells:
                return
        super().says(name, local, fact)

    def round(self) -> None:
        """All tell what they hold after another few steps."""
        self.now_us += SECOND_US
        self.step = Step(self.step + EVERY - self.step % EVERY)
        for rank in self.chance.sample([*self.ranks], len(self.ranks)):
            hashes = [self._hash(rank, path) for path in PATHS]
            shared = len(SECTIONS[0])
            said = m.Fingerprinted(
                rank=Rank(rank), epoch=self.job.epoch, step=self.step, layout="all", paths=PATHS,
                sections=[*map(len, SECTIONS)],
                shared=struct.pack(f"<{shared}Q", *hashes[:shared]),
                rest=struct.pack(f"<{len(hashes) - shared}Q", *hashes[shared:]),
            )  # fmt: skip
            self.says(self.place(rank), rank % self.nproc, said)

    def _hash(self, rank: int, path: str) -> int:
        flaw = self.wrong.get(rank, {}).get(path, 0)
        family = self.together[rank % len(self.together)]
        return int(zlib.crc32(f"{path} {self.step} {family} {flaw}".encode()))

    def lose(self, name: MachineId) -> None:
        lost = Lost(machine=name, why="its link has ended", heard_us=self.now_us)
        self.hear(MachinesLost(at_us=self.now_us, lost=[lost]))

    def switches(self) -> list[m.Switch]:
        """All that were ordered."""
        sent = [one.order for one in self.log if isinstance(one, Send)]
        return [order for order in sent if isinstance(order, m.Switch)]

    def ending(self) -> str:
        """What was said in the end; "" if it goes on."""
        return next((one.text for one in (*self.log, *self.told) if isinstance(one, End)), "")

    def moves(self) -> list[Incident]:
        return [one for one in self.job.incidents if one.kind is Kind.MOVE]

    def nobody_moves(self, why: str) -> None:
        before = len(self.moves())
        self.rests(2)
        if len(self.moves()) != before or self.job.change is not None:
            raise Violation(f"{why}, and ranks are moved: {self.moves()}")


def _flips(job: Job) -> int:
    """A bit of one rank, in one tensor or in few; the rank."""
    rank: int = job.chance.choice([*job.ranks])
    job.rests(1)
    job.round()
    job.settles()
    job.log.clear()
    few = job.chance.sample(SECTIONS[0], job.chance.choice((1, 1, 2)))
    job.wrong[rank] = dict.fromkeys(few, int(job.step))
    job.round()
    if job.job.comparison.diverged != {rank}:
        raise Violation(f"{rank} differs from all others: {job.job.comparison.divergences}")
    return rank


def _is_replaced(chance: random.Random) -> None:
    """If somebody wants that: with the state of others, as soon as there is a standby."""
    wanted, late = chance.random() < 0.8, chance.random() < 0.3
    job = Job(chance, on_divergence="replace" if wanted else "report")
    spares = job.names[len(job.job.seats) :]
    if late:
        for name in spares:
            job.hear(CordonRequested(at_us=job.now_us, request=f"c{name}", machine=name))
    rank = _flips(job)
    since, name = job.step, job.place(rank)
    note = f"its memory is in doubt since step {since}"
    doubted = [one.id for one in job.job.machines.values() if one.suspect]
    if doubted != [name] or job.job.machines[name].suspect != note:
        raise Violation(f"{name} is in doubt since step {since}: {doubted}")
    if late or not wanted:
        job.nobody_moves("nobody can take them" if wanted else "it is to be reported")
        return
    job.settles()
    one = job.moves()[-1]
    if one.machine != name or one.outcome is not Outcome.DONE or name in job.job.seats:
        raise Violation(f"rank {rank} of {name} is wrong, and moved was {one}")
    if one.cause != f"rank {rank} differs from its replicas since step {since}":
        raise Violation(f"rank {rank} differs since step {since}: {one.cause!r}")
    _takes_from_others(job, rank)
    del job.wrong[rank]
    job.rests(1)
    before = len(job.job.comparison.divergences)
    job.round()
    job.nobody_moves("all hold the same again")
    if job.job.comparison.diverged or len(job.job.comparison.divergences) != before:
        raise Violation(f"all hold the same again: {job.job.comparison.divergences}")
    _gets_none_again(job, name)


def _takes_from_others(job: Job, rank: int) -> None:
    """Who is wrong gives its own state to nobody; the others of its machine theirs."""
    orders = job.switches()
    here = {r for r in job.ranks if r // job.nproc == rank // job.nproc}
    for order in orders:
        first = {int(to): int(sources[0].rank) for to, sources in order.sources.items()}
        own = {to: source for to, source in first.items() if to != rank}
        if {*first} != here or any(to != source for to, source in own.items()):
            raise Violation(f"ranks {here} are taken from where they are: {first}")
        if rank in {int(one.rank) for one in order.sources[Rank(rank)]}:
            raise Violation(f"rank {rank} is wrong, and is its own source: {order.sources}")
        if order.diverged != [rank]:
            raise Violation(f"rank {rank} is wrong: {order.diverged}")
    if not orders:
        raise Violation("nobody was told to switch")


def _gets_none_again(job: Job, name: MachineId) -> None:
    """It is a standby no more, also if there is no other."""
    for _ in range(2):
        gone = job.chance.choice(job.job.seats)
        job.step = Step(job.step + 1)
        job.lose(gone)
        job.log.clear()
        job.rests(1)
        if name in job.job.seats:
            raise Violation(f"the memory of {name} is in doubt, and it takes the ranks of {gone}")
    end = job.ending()
    if f"{name} gets no ranks: its memory is in doubt" not in end:
        raise Violation(f"{name} is all that is left, and its memory is in doubt: {end!r}")


def _in_vain(chance: random.Random) -> None:
    """It is tried three times, and no more."""
    job = Job(chance)
    tries = chance.choice((1, 2, 3, 4))
    job.fails = job.job.epoch + tries
    _flips(job)
    job.rests(2)
    done = [one.outcome for one in job.moves()]
    failed = min(tries, TRIES)
    well = [Outcome.DONE] if tries < TRIES else []
    if len(done) != failed + len(well) or done[failed:] != well or Outcome.DONE in done[:failed]:
        raise Violation(f"{tries} moves fail, of {TRIES} that are tried: {job.moves()}")


def _is_no_proof(chance: random.Random) -> None:
    """Of two nobody knows which is right; who has just joined may have state of its own; and where
    nobody else has what the rank ought to hold, its machine stays."""
    how = chance.choice(("two", "joined", "alone"))
    shapes = {"two": {"machines": 2, "nproc": 1}, "alone": {"machines": 2, "nproc": 3}}
    job = Job(chance, **shapes.get(how, {}))
    rank = 0
    if how == "alone":
        job.together = [0, 0, 0, 1, 1, 1]
    job.round()
    job.settles()
    if how == "joined":
        name = chance.choice(job.job.seats)
        rank = job.nproc * job.job.seats.index(name) + chance.randrange(job.nproc)
        job.hear(MoveRequested(at_us=job.now_us, request="m", machine=name))
        job.rests(2)
    job.wrong[rank] = {"w1": int(job.step)}
    job.round()
    found = job.job.comparison.divergences
    if len(found) != 1 or (rank in found[0].diverged) is (how == "two"):
        raise Violation(f"{how}: rank {rank} differs: {found}")
    job.nobody_moves(f"{how}: that rank {rank} differs is no reason")
    doubted = [one.id for one in job.job.machines.values() if one.suspect]
    if doubted != ([job.place(rank)] if how == "alone" else []):
        raise Violation(f"{how}: {doubted} are in doubt")


def _is_not_believed(chance: random.Random) -> None:
    """A machine is lost, and those who were said to hold what it held do not all hold the same."""
    job = Job(chance, machines=4, nproc=1)
    if chance.random() < 0.5:
        job.round()
        job.settles()
    rank = chance.choice([*job.ranks])
    others = [one for one in job.ranks if one != rank]
    odd = chance.choice(others)
    how = chance.choice(("most", "most", "unlike", "nobody"))
    holders = {Rank(one): f"d{one if how == 'nobody' else one == odd}" for one in others}
    unlike = [Rank(one) for one in others if one != odd] if how == "unlike" else [Rank(odd)]
    job.tells[rank] = m.Unproven(
        rank=Rank(rank), epoch=job.job.epoch, holders=holders, unlike=unlike
    )
    job.step = Step(job.step + 1)
    job.log.clear()
    job.lose(job.place(rank))
    job.settles()
    since = job.job.comparison.step
    if how != "most":
        words = f"ranks that held the state of rank {rank} after step {since} have parted since"
        if words not in job.ending():
            raise Violation(f"nobody is believed to hold what rank {rank} did: {job.ending()!r}")
        return
    orders = job.switches()
    sources = {int(one.rank) for one in orders[-1].sources[Rank(rank)]}
    if sources != {*others} - {odd} or job.job.change is not None:
        raise Violation(f"{odd} is not believed, and {sources} are: {job.job.change}")
    recoveries = [one for one in job.job.incidents if one.kind is Kind.RECOVERY]
    if len(recoveries) != 1 or recoveries[0].outcome is not Outcome.DONE:
        raise Violation(f"one machine was lost, and that is over: {recoveries}")


STORIES = (_is_replaced, _is_replaced, _in_vain, _is_no_proof, _is_not_believed, _is_not_believed)


def play(chance: random.Random) -> None:
    """One job."""
    chance.choice(STORIES)(chance)
