"""Ranks that stand still, of which is known who keeps the others waiting.

Who stands in his own business while others wait for him is ended, as long as that is at most half
of all; who is stopped is after a second, whoever waits. Who wait for each other end the job.
"""

import random

from courses.trained import SECOND_US, Trained
from trainmover.controller.change.price import can_be_replaced
from trainmover.controller.clock import tick_due
from trainmover.controller.events import Lost, MachinesLost, MoveRequested, StopRequested
from trainmover.controller.state import Phase, Stage
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

DEADLINE_MS = 1000
STOPPED_US, SPARE_US, END_US = SECOND_US, 10 * SECOND_US, 2 * SECOND_US
LATELY_US = 600 * SECOND_US
LOOKS_US = 200_000
STEP = 12


class Watched(Trained):
    """With somebody who keeps the time: he looks when something may follow from it."""

    def passes(self, us: int) -> None:
        due = tick_due(self.job, self.now_us + us - LOOKS_US, self.now_us + us)
        before = len(self.told)
        super().passes(us)
        if len(self.told) > before and not due:
            raise Violation(f"nobody had to look, and from the time follows {self.told[before:]}")


def stands(
    job: Trained,
    rank: int,
    where: str,
    count: int,
    *,
    still_ms: int = 1500,
    step: int = STEP,
    deadline_ms: int = DEADLINE_MS,
    call: str = "all_reduce",
    behind: int = 3,
    waits_in: str = "",
) -> None:
    fact = m.Stands(
        rank=Rank(rank),
        epoch=job.job.epoch,
        step=Step(step),
        where=where,
        counts={"w": count, "v": behind, f"own {rank}": rank},  # Of some groups all, or one, are.
        still_ms=still_ms,
        deadline_ms=deadline_ms,
        call=call if where == "call" else "",
        group=waits_in,
        place="train.py line 7" if where == "script" else "",
    )
    job.rank_says(rank, fact)


def _ended(job: Trained) -> dict[MachineId, m.EndWorker]:
    found = dict(job.orders(m.EndWorker))
    job.told.clear()
    return found


def _is_ended(job: Trained, ranks: list[int], *words: str) -> None:
    """One process on each of their machines, and no other."""
    first: dict[MachineId, tuple[int, int]] = {}
    for rank in sorted(ranks):
        name, local = job.at(rank)
        first.setdefault(name, (local, rank))
    ended = _ended(job)
    said = {name: (one.local_rank, one.pid) for name, one in ended.items()}
    truth = {name: (local, job.pid(name, local)) for name, (local, _) in first.items()}
    if said != truth:
        raise Violation(f"ranks {ranks} keep the others waiting, and {ended} are to end")
    for name, one in ended.items():
        for word in (f"rank {first[name][1]} on {name} stood still", *words):
            if word not in one.why:
                raise Violation(f"{one.why!r} does not say {word!r}")


def nobody(job: Trained, why: str) -> None:
    gone = job.fenced()
    if (ended := _ended(job)) or gone:
        raise Violation(f"{why}, and {ended} are to end, {gone} to go")


# --- who keeps the others waiting ----------------------------------------------------------------


def _busy(chance: random.Random) -> None:
    """Some are in their script, or fetch a batch; all others wait for them in a call."""
    job = begun(chance, watch=chance.random() < 0.9)
    ranks = [*job.ranks]
    busy = sorted(chance.sample(ranks, chance.randint(1, len(ranks))))
    waiting = [rank for rank in ranks if rank not in busy]
    where, ahead = chance.choice(("script", "fetch")), chance.random() < 0.7
    for rank in waiting[: -1 if ahead else None]:
        stands(job, rank, "call", 8 if ahead else 7)
    for rank in busy[:-1]:
        stands(job, rank, where, 7, still_ms=2500)
        if chance.random() < 0.2:
            job.rank_says(rank, m.Moves(rank=Rank(rank), epoch=job.job.epoch))
            stands(job, rank, where, 7, still_ms=2500)
    first = {job.at(busy[0])[0]} if ahead and len(waiting) > 1 and len(busy) > 1 else set()
    early = {*_ended(job)}
    if early != (first if job.job.spec.watch else set()):
        raise Violation(f"{first} keeps others waiting by now, and {early} are to end")
    if early:
        return
    stands(job, busy[-1], where, 7, still_ms=2500)
    if ahead and len(waiting) == 1:
        nobody(job, "nobody waits yet")
        stands(job, waiting[-1], "call", 8)
    expected = busy if waiting and 2 * len(busy) <= len(ranks) else []
    if not job.job.spec.watch:
        expected = []
    if not expected and (asked := job.orders(m.Probe)):
        raise Violation(f"ranks {busy} wait for nobody, and ways are asked for: {asked}")
    place = "fetching a batch" if where == "fetch" else "its script at train.py line 7"
    _is_ended(job, expected, f"in step {STEP} for 2.5 s", place)


def _is_ahead(chance: random.Random) -> None:
    """Who has begun what the others wait in keeps nobody waiting as long as somebody has not; where
    all others wait it is a message of his, which nobody counts."""
    job = begun(chance)
    behind, ahead, *others = chance.sample([*job.ranks], len(job.ranks))
    for rank in others:
        stands(job, rank, "call", 8)
    stands(job, ahead, "script", chance.choice((8, 9)))
    early = chance.random() < 0.5
    stands(job, behind, "call" if early else "script", 7)
    _is_ended(job, [ahead] if early else [behind])


def _late(chance: random.Random) -> None:
    """What ranks said in an epoch that is over, or before they moved, counts no more."""
    job = begun(chance)
    one, other = chance.sample([*job.ranks], 2)
    stands(job, one, "script", 7)
    old = chance.random() < 0.5
    if old:
        fact = m.Stands(
            rank=Rank(other), epoch=Epoch(job.job.epoch - 1), step=Step(STEP), where="call",
            counts={"w": 8}, still_ms=1500, deadline_ms=DEADLINE_MS,
        )  # fmt: skip
        job.rank_says(other, fact)
    else:
        job.rank_says(one, m.Moves(rank=Rank(one), epoch=job.job.epoch))
        stands(job, other, "call", 8)
    nobody(job, "nobody waits for who stands")
    if old:
        stands(job, other, "call", 8)
        _is_ended(job, [one])
    else:
        stands(job, one, "script", 7)
        _is_ended(job, [one])


def _stopped(chance: random.Random) -> None:
    """A process is stopped, or held by a debugger, or does not answer; it may go on in time."""
    job = begun(chance)
    state = chance.choice(("stopped", "traced", "deaf"))
    rank = chance.choice([*job.ranks])
    name, local = job.at(rank)
    pid, since_ms = job.pid(name, local), chance.choice((0, 300))
    if chance.random() < 0.3:
        job.agent_says(name, m.WorkerState(local_rank=local, pid=pid + 50, state=state))
        job.passes(2 * STOPPED_US)
        nobody(job, "another process was stopped")
    ranks, stood_s = [rank], 0.0
    if chance.random() < 0.3:
        stands(job, rank, "script", 7)
        stood_s = 1.5 - since_ms / 1000
    elif state != "deaf" and chance.random() < 0.3:
        ranks += [next(one for one in job.ranks if job.at(one)[0] != name)]
    for one in ranks:
        here, at = job.at(one)
        said = m.WorkerState(local_rank=at, pid=job.pid(here, at), state=state, since_ms=since_ms)
        job.agent_says(here, said)
    job.passes(STOPPED_US - since_ms * 1000 - 1)
    nobody(job, "it is stopped for less than a second")
    if chance.random() < 0.3 and len(ranks) == 1:
        job.agent_says(name, m.WorkerState(local_rank=local, pid=pid, state=""))
        job.passes(5 * STOPPED_US)
        nobody(job, "it goes on")
        return
    if ends := chance.random() < 0.1:
        job.now_us += 1
        job.hear(StopRequested(at_us=job.now_us, code=1, why="enough"))
    else:
        job.passes(1)
    if state == "deaf" or ends:
        nobody(job, "nobody waits for it")
        job.passes(SPARE_US)
        nobody(job, "nobody waits for it")
        if ends:
            return
        stood_s += SPARE_US / SECOND_US
        stands(job, next(one for one in job.ranks if one != rank), "call", 8)
    step = f" in step {STEP}" if stood_s else ""
    _is_ended(job, ranks, f"{step} for {1 + stood_s:.1f} s: its process")
    if chance.random() < 0.5:
        first = min(job.at(one)[0] for one in ranks)
        goes = [first] if can_be_replaced(job.job, first) else []
        job.passes(END_US - 1)
        nobody(job, "it has yet to end")
        job.passes(1)
        if job.fenced() != goes:
            raise Violation(f"{name} did not end its process, and {job.fenced()} are given up")
        return
    _tells_its_stack(job, name, local)
    incident = job.job.incidents[-1]
    if incident.machine != name or incident.stacks != {rank: "in wait"} or job.fenced():
        raise Violation(f"{name} has ended its process: {incident}, {job.fenced()}")


def _tells_its_stack(job: Trained, name: MachineId, local: int) -> None:
    """And ends; of other processes it is of no account where they stand."""
    for other in job.names[: len(job.job.seats)]:
        for pid in (job.pid(other, local), job.pid(other, local) + 50):
            is_it = (other, pid) == (name, job.pid(name, local))
            text = "in wait" if is_it else "elsewhere"
            if other == name or other not in job.job.hanging.condemned:
                job.agent_says(other, m.Stack(local_rank=local, pid=pid, text=text))
    job.agent_says(name, m.WorkerExited(local_rank=local, pid=job.pid(name, local), code=-9))


def _again(chance: random.Random) -> None:
    """A standby is stopped: after ten seconds it is ended; the second time in ten minutes it
    goes, whoever else was meanwhile. One that only does not answer is not waited for."""
    job = begun(chance)
    name, other = job.names[-1], job.names[-2]
    if chance.random() < 0.2:
        job.agent_says(name, m.WorkerState(local_rank=0, pid=job.pid(name, 0), state="deaf"))
        job.passes(2 * SPARE_US)
        nobody(job, "nobody waits for a standby")
        return
    after_us = chance.choice((LATELY_US // 2, LATELY_US, LATELY_US + SECOND_US))
    _spare_is_ended(job, name, goes=False)
    begun_us = job.now_us
    if chance.random() < 0.5:
        _spare_is_ended(job, other, goes=False)
    job.passes(after_us - SPARE_US - (job.now_us - begun_us))
    _spare_is_ended(job, name, goes=after_us < LATELY_US)


def _spare_is_ended(job: Trained, name: MachineId, *, goes: bool) -> None:
    """Of what is heard late of the process nothing follows."""
    pid = job.job.machines[name].pids[0]
    job.told.clear()
    job.agent_says(name, m.WorkerState(local_rank=0, pid=pid, state="stopped"))
    job.passes(SPARE_US - 1)
    nobody(job, "a standby is stopped for less than ten seconds")
    job.passes(1)
    ended = _ended(job)
    if [*ended] != [name] or "has no rank" not in ended[name].why:
        raise Violation(f"{name} is stopped, and {ended} are to end")
    job.agent_says(name, m.WorkerExited(local_rank=0, pid=pid, code=-9))
    if (name in job.fenced()) is not goes:
        raise Violation(f"{name} was stopped, and again: {goes}; {job.fenced()} are given up")
    if goes:
        return
    job.agent_says(name, m.WorkerState(local_rank=0, pid=pid, state="stopped"))
    job.started += 1
    job.comes_up(name)
    job.told.clear()


def _may_take_long(chance: random.Random) -> None:
    """First steps, and the last ones: who is in his script is not late, whoever waits."""
    first = chance.random() < 0.5
    job = begun(chance, begins=not first)
    one, *others = chance.sample([*job.ranks], len(job.ranks))
    if first:
        for rank in job.ranks:
            job.rank_says(rank, m.Attached(rank=Rank(rank)))
    else:
        rank = others.pop()
        done = m.Finished(rank=Rank(rank), step=Step(4), code=0, digest="d", attached=True)
        job.rank_says(rank, done)
    for rank in others:
        stands(job, rank, "call", 8)
    stands(job, one, "script", 7)
    job.passes(SECOND_US)
    nobody(job, f"{'first' if first else 'last'} steps may take long")


def _before(chance: random.Random) -> None:
    """A process is stopped before the job begins: after ten seconds others begin."""
    job = begun(chance, begins=False)
    name, gone = job.names[:2]
    lost = Lost(machine=gone, why="its link has ended", heard_us=job.now_us)
    job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    if job.job.phase is not Phase.STARTING:
        raise Violation(f"{gone} is lost before the first steps are known: {job.job.phase}")
    job.told.clear()
    state = chance.choice(("stopped", "deaf"))
    job.agent_says(name, m.WorkerState(local_rank=0, pid=777, state=state))
    job.passes(SPARE_US - 1)
    nobody(job, "it is stopped for less than ten seconds")
    job.passes(1)
    goes = [name] if state == "stopped" else []
    if job.fenced() != goes or (name in job.job.machines) is bool(goes):
        raise Violation(f"{name} is {state} before the job begins, and {job.fenced()} are given up")


def _at_the_end(chance: random.Random) -> None:
    """All scripts are over; a process that is stopped then leaves no more, as one that has left
    need not."""
    job = begun(chance)
    stands(job, chance.choice([*job.ranks]), "script", 7)
    for rank in job.ranks:
        job.rank_says(
            rank, m.Finished(rank=Rank(rank), step=Step(4), code=0, digest="d", attached=True)
        )
    rank = chance.choice([*job.ranks])
    name, local = job.at(rank)
    gone = chance.random() < 0.5 and job.nproc == 1
    if gone:
        job.agent_says(name, m.WorkerExited(local_rank=local, pid=job.pid(name, local), code=0))
    job.told.clear()
    job.agent_says(name, m.WorkerState(local_rank=local, pid=job.pid(name, local), state="stopped"))
    job.passes(STOPPED_US)
    if gone:
        nobody(job, "it has left")
    else:
        _is_ended(job, [rank], "after its last step")


def _in_a_move(chance: random.Random) -> None:
    """All stand at the boundary but for one, which stands in its script; or for another that is not
    seen to stand: then it takes twice as long."""
    job = begun(chance)
    one, other = chance.sample([*job.ranks], 2)
    both = chance.random() < 0.5
    job.mute = {one, other} if both else {one}
    move = MoveRequested(at_us=job.now_us, request="m", machine=chance.choice(job.job.seats))
    job.hear(move)
    job.settles()
    if job.job.change is None or job.job.change.stage is not Stage.PAUSE:
        raise Violation(f"ranks {job.mute} are not there yet: {job.job.change}")
    job.told.clear()
    where = chance.choice(("script", "fetch", "call"))
    stands(job, one, where, 7)
    if where == "call":
        job.passes(SECOND_US)
        nobody(job, f"rank {one} waits for others")
        return
    if both:
        nobody(job, f"rank {other} may be as slow")
        job.passes(SECOND_US // 2 - 1)
        nobody(job, f"rank {other} may be as slow")
        job.passes(1)
    _is_ended(job, [one], f"in step {STEP}")


def _in_a_circle(chance: random.Random) -> None:
    """Some wait in one group for those who wait in another one for them: the job ends, but not as
    long as one of them may be as slow, or a change is under way."""
    job = begun(chance)
    ranks = chance.sample([*job.ranks], len(job.ranks))
    first = ranks[: chance.randint(1, len(ranks) - 1)]
    if moves := chance.random() < 0.3:
        job.mute = {*ranks}
        job.hear(MoveRequested(at_us=job.now_us, request="m", machine=chance.choice(job.job.seats)))
        job.settles()
        job.told.clear()
    slow = chance.choice(("", "", "w", "v"))
    for rank in ranks:
        if rank in first:
            stands(job, rank, "call", 8, waits_in="w", behind=4 if slow == "v" else 3)
        else:
            stands(job, rank, "call", 8 if slow == "w" else 7, waits_in="v", behind=4)
    ended = job.job.phase is Phase.ENDED
    if ended != (not slow and not moves):
        raise Violation(f"{first} wait for the others, slow: {slow}, moves: {moves}: {ended}")
    if ended and "wait for each other" not in job.job.ended_because:
        raise Violation(f"{job.job.ended_because!r} does not say why")


def begun(chance: random.Random, **more: object) -> Trained:
    nproc = chance.choice((1, 1, 2))
    machines = chance.choice((2, 4)) if nproc == 2 else chance.choice((3, 4, 5))
    begins = more.pop("begins", True)
    job = Watched(chance, machines=machines, standbys=2, nproc=nproc, wait_s=60, **more)
    if begins:
        job.trains()
    return job


STANDSTILLS = (
    _busy, _busy, _late, _stopped, _stopped, _again, _before, _at_the_end,
    _in_a_move, _in_a_circle, _may_take_long, _is_ahead,
)  # fmt: skip


def play(chance: random.Random) -> None:
    """One standstill."""
    chance.choice(STANDSTILLS)(chance)
