"""Ranks that stand still, of which is known who keeps the others waiting, or which ways are gone.

Who stands in his own business while others wait for him is ended, as long as that is at most half
of all; who is stopped is after a second, whoever waits. Where all wait in one call machines are
asked twice whom they reach; one that lacks ways that others have goes, and nobody where it is no
machine's fault.
"""

import random
from itertools import permutations

from trainmover.controller.events import Lost, MachinesLost, MoveRequested
from trainmover.controller.state import Phase, Stage
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator.courses.trained import SECOND_US, Trained
from trainmover.simulator.happenings import Violation

DEADLINE_MS = 1000
STOPPED_US, SPARE_US, END_US = SECOND_US, 10 * SECOND_US, 2 * SECOND_US
AGAIN_US, ANSWERS_US, ALL_US = 2 * SECOND_US, 5 * SECOND_US, 10 * SECOND_US
LATELY_US = 600 * SECOND_US
STEP = 12


def _stands(job: Trained, rank: int, where: str, count: int, *, still_ms: int = 1500) -> None:
    fact = m.Stands(
        rank=Rank(rank),
        epoch=job.job.epoch,
        step=Step(STEP),
        where=where,
        counts={"w": count},
        still_ms=still_ms,
        deadline_ms=DEADLINE_MS,
        call="all_reduce" if where == "call" else "",
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


def _nobody(job: Trained, why: str) -> None:
    if (ended := _ended(job)) or job.fenced():
        raise Violation(f"{why}, and {ended} are to end")


# --- who keeps the others waiting ----------------------------------------------------------------


def _busy(chance: random.Random) -> None:
    """Some are in their script, or fetch a batch; all others wait for them in a call."""
    job = _of(chance, watch=chance.random() < 0.9)
    ranks = [*job.ranks]
    busy = sorted(chance.sample(ranks, chance.randint(1, len(ranks))))
    waiting = [rank for rank in ranks if rank not in busy]
    where, ahead = chance.choice(("script", "fetch")), chance.random() < 0.7
    for rank in waiting[: -1 if ahead else None]:
        _stands(job, rank, "call", 8 if ahead else 7)
    for rank in busy[:-1]:
        _stands(job, rank, where, 7, still_ms=2500)
        if chance.random() < 0.2:
            job.rank_says(rank, m.Moves(rank=Rank(rank), epoch=job.job.epoch))
            _stands(job, rank, where, 7, still_ms=2500)
    first = {job.at(busy[0])[0]} if ahead and len(waiting) > 1 and len(busy) > 1 else set()
    early = {*_ended(job)}
    if early != (first if job.job.spec.watch else set()):
        raise Violation(f"{first} keeps others waiting by now, and {early} are to end")
    if early:
        return
    _stands(job, busy[-1], where, 7, still_ms=2500)
    if ahead and len(waiting) == 1:
        _nobody(job, "nobody waits yet")
        _stands(job, waiting[-1], "call", 8)
    expected = busy if waiting and 2 * len(busy) <= len(ranks) else []
    if not job.job.spec.watch:
        expected = []
    place = "fetching a batch" if where == "fetch" else "its script at train.py line 7"
    _is_ended(job, expected, f"in step {STEP} for 2.5 s", place)


def _late(chance: random.Random) -> None:
    """What ranks said in an epoch that is over, or before they moved, counts no more."""
    job = _of(chance)
    one, other = chance.sample([*job.ranks], 2)
    _stands(job, one, "script", 7)
    old = chance.random() < 0.5
    if old:
        fact = m.Stands(
            rank=Rank(other), epoch=Epoch(job.job.epoch - 1), step=Step(STEP), where="call",
            counts={"w": 8}, still_ms=1500, deadline_ms=DEADLINE_MS,
        )  # fmt: skip
        job.rank_says(other, fact)
    else:
        job.rank_says(one, m.Moves(rank=Rank(one), epoch=job.job.epoch))
        _stands(job, other, "call", 8)
    _nobody(job, "nobody waits for who stands")
    if old:
        _stands(job, other, "call", 8)
        _is_ended(job, [one])
    else:
        _stands(job, one, "script", 7)
        _is_ended(job, [one])


def _stopped(chance: random.Random) -> None:
    """A process is stopped, or held by a debugger, or does not answer; it may go on in time."""
    job = _of(chance)
    state = chance.choice(("stopped", "traced", "deaf"))
    rank = chance.choice([*job.ranks])
    name, local = job.at(rank)
    pid, since_ms = job.pid(name, local), chance.choice((0, 300))
    if chance.random() < 0.3:
        job.agent_says(name, m.WorkerState(local_rank=local, pid=pid + 50, state=state))
        job.passes(2 * STOPPED_US)
        _nobody(job, "another process was stopped")
    said = m.WorkerState(local_rank=local, pid=pid, state=state, since_ms=since_ms)
    job.agent_says(name, said)
    job.passes(STOPPED_US - since_ms * 1000 - 1)
    _nobody(job, "it is stopped for less than a second")
    if chance.random() < 0.3:
        job.agent_says(name, m.WorkerState(local_rank=local, pid=pid, state=""))
        job.passes(5 * STOPPED_US)
        _nobody(job, "it goes on")
        return
    job.passes(1)
    if state == "deaf":
        _nobody(job, "nobody waits for it")
        _stands(job, next(one for one in job.ranks if one != rank), "call", 8)
    _is_ended(job, [rank], "for 1.0 s")
    if chance.random() < 0.5:
        job.passes(END_US - 1)
        _nobody(job, "it has yet to end")
        job.passes(1)
        if job.fenced() != [name]:
            raise Violation(f"{name} did not end its process, and {job.fenced()} are given up")
        return
    stack = m.Stack(local_rank=local, pid=pid, text="in wait")
    job.agent_says(name, stack)
    job.agent_says(name, m.WorkerExited(local_rank=local, pid=pid, code=-9))
    incident = job.job.incidents[-1]
    if incident.machine != name or incident.stacks != {rank: "in wait"} or job.fenced():
        raise Violation(f"{name} has ended its process: {incident}, {job.fenced()}")


def _again(chance: random.Random) -> None:
    """A standby is stopped: after ten seconds it is ended; the second time in ten minutes it
    goes."""
    job = _of(chance)
    name = job.names[-1]
    after_us = chance.choice((LATELY_US // 2, LATELY_US + SECOND_US))
    pid = job.pid(name, 0)
    for turn in range(2):
        job.agent_says(name, m.WorkerState(local_rank=0, pid=pid, state="stopped"))
        job.passes(SPARE_US - 1)
        _nobody(job, "a standby is stopped for less than ten seconds")
        job.passes(1)
        ended = _ended(job)
        if [*ended] != [name] or "has no rank" not in ended[name].why:
            raise Violation(f"{name} is stopped, and {ended} are to end")
        job.agent_says(name, m.WorkerExited(local_rank=0, pid=pid, code=-9))
        goes = turn == 1 and after_us < LATELY_US
        if (name in job.fenced()) is not goes:
            raise Violation(f"{name} was stopped again after {after_us} us: {job.fenced()}")
        if goes:
            return
        job.passes(after_us - SPARE_US)
        job.told.clear()
        pid += 10_000
        for local in range(job.nproc):
            up = m.WorkerUp(pid=pid + local, address=f"{name}/{local}", torch="2", version="1")
            job.says(name, local, up)
        job.told.clear()


def _before(chance: random.Random) -> None:
    """A process is stopped before the job begins: after ten seconds others begin."""
    job = _of(chance, begins=False)
    name, gone = job.names[:2]
    lost = Lost(machine=gone, why="its link has ended", heard_us=job.now_us)
    job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    if job.job.phase is not Phase.STARTING:
        raise Violation(f"{gone} is lost before the first steps are known: {job.job.phase}")
    job.told.clear()
    state = chance.choice(("stopped", "deaf"))
    job.agent_says(name, m.WorkerState(local_rank=0, pid=777, state=state))
    job.passes(SPARE_US - 1)
    _nobody(job, "it is stopped for less than ten seconds")
    job.passes(1)
    goes = [name] if state == "stopped" else []
    if job.fenced() != goes or (name in job.job.machines) is bool(goes):
        raise Violation(f"{name} is {state} before the job begins, and {job.fenced()} are given up")


def _at_the_end(chance: random.Random) -> None:
    """All scripts are over; a process that is stopped then leaves no more, as one that has left
    need not."""
    job = _of(chance)
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
        _nobody(job, "it has left")
    else:
        _is_ended(job, [rank], "after its last step")


def _in_a_move(chance: random.Random) -> None:
    """All stand at the boundary but for one, which stands in its script; or for another that is not
    seen to stand: then it takes twice as long."""
    job = _of(chance)
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
    _stands(job, one, where, 7)
    if where == "call":
        job.passes(SECOND_US)
        _nobody(job, f"rank {one} waits for others")
        return
    if both:
        _nobody(job, f"rank {other} may be as slow")
        job.passes(SECOND_US // 2 - 1)
        _nobody(job, f"rank {other} may be as slow")
        job.passes(1)
    _is_ended(job, [one], f"in step {STEP}")


def _all(chance: random.Random) -> None:
    """All wait in one call for ten seconds, or ten deadlines, and every way works: the step is
    tried again, once."""
    job = _of(chance)
    long_ms = max(ALL_US // 1000, 10 * DEADLINE_MS)
    first = chance.choice([*job.ranks])
    for rank in job.ranks:
        _stands(job, rank, "call", 8, still_ms=2500 if rank == first else 1500)
    job.told.clear()
    job.passes((long_ms - 1500) * 1000 - 1)
    if job.job.change is not None:
        raise Violation(f"all stand for less than {long_ms} ms: {job.job.change}")
    job.passes(1)
    while job.job.change is None and job.orders(m.Probe):
        _answer(job, job.orders(m.Probe), set(), None)
        job.told.clear()
        job.passes(1)
    change, one = job.job.change, job.job.incidents[-1] if job.job.incidents else None
    if change is None or one is None or one.machine is not None or job.fenced():
        raise Violation(f"all have stood for {long_ms} ms: {change}, {one}")
    words = f"all ranks stood still in step {STEP} for {(long_ms + 1000) / 1000:.1f} s"
    if words not in one.cause or "all_reduce" not in one.cause:
        raise Violation(f"{one.cause!r} is to say {words!r}")
    job.settles()
    job.told.clear()
    for rank in job.ranks:
        _stands(job, rank, "call", 8, still_ms=long_ms + 5)
    job.passes(SECOND_US)
    if job.job.change is not None:
        raise Violation(f"step {STEP} was tried again for standing already: {job.job.change}")


# --- ways between machines ------------------------------------------------------------------------


Way = tuple[MachineId, MachineId]


def _ways(chance: random.Random) -> None:
    """All wait in the same call."""
    machines = chance.choice((2, 3, 5))
    job = Trained(chance, machines=machines, standbys=2, wait_s=60)
    job.trains()
    seats, spares = job.names[:machines], job.names[machines:]
    how = chance.choice(("one", "pair", "spare", "all", "none", "mute", "once", "no spare"))
    worst, peer = chance.sample(seats, 2)
    gone: set[Way] = set()
    every = {*permutations(job.names, 2)}
    match how:
        case "one" | "mute":
            gone = {way for way in every if worst in way}
        case "pair" | "once":
            gone = {(worst, peer), (peer, worst)} if chance.random() < 0.5 else {(worst, peer)}
        case "no spare":
            gone = {(worst, peer)} | {(spare, seat) for spare in spares for seat in seats}
        case "spare":
            gone = {way for way in every if spares[0] in way}
        case "all":
            gone = {way for way in every if {*way} <= {*seats}} | {
                way for way in every if {*way} & {*spares}
            }
    for rank in job.ranks:
        _stands(job, rank, "call", 8)
    for turn in range(2):
        probes = job.orders(m.Probe)
        if sorted(name for name, _ in probes) != sorted(job.names) or job.fenced():
            raise Violation(f"all wait in one call, and {probes} are asked")
        job.told.clear()
        for name, probe in probes:
            if {*probe.vaults} != {*job.names} - {name}:
                raise Violation(f"{name} is to dial {probe.vaults}")
        missing = set() if how == "once" and turn else gone
        _answer(job, probes, missing, mute=worst if how == "mute" else None)
        if how == "mute":
            job.passes(ANSWERS_US - 1)
            _nobody(job, f"{worst} may still answer")
            job.passes(1)
        if turn == 0:
            _nobody(job, "ways may be gone for a moment")
            job.passes(1 if how == "mute" else AGAIN_US)
    _goes(job, how, gone, worst, peer)


def _answer(
    job: Trained, probes: list[tuple[MachineId, m.Probe]], missing: set[Way], mute: MachineId | None
) -> None:
    for name, probe in probes:
        if name == mute:
            continue
        there = [other for other in job.names if other != name and (name, other) not in missing]
        late = m.Reached(number=probe.number - 1, machines=[])
        job.agent_says(name, late)
        job.agent_says(name, m.Reached(number=probe.number, machines=there))


def _goes(job: Trained, how: str, gone: set[Way], worst: MachineId, peer: MachineId) -> None:
    few = len(job.job.spec.argv) and job.job.spec.machines == 2
    match how:
        case "one" | "mute":
            expected = [worst]
        case "pair":
            expected = [min(worst, peer)]
        case "no spare":
            expected = [] if few else [min(worst, peer)]
        case _:
            expected = []
    fenced = job.fenced()
    if fenced != expected:
        raise Violation(f"{how}: {gone} are gone; {expected} is to go, and {fenced} does")
    if not expected:
        return
    ways = 2 * (len(job.names) - 1)
    left = ways - sum(expected[0] in way for way in gone)
    if (
        f"; {expected[0]} has {left} of {ways} ways to the others"
        not in job.job.incidents[-1].cause
    ):
        raise Violation(f"{left} of {ways} are left: {job.job.incidents[-1].cause}")


def _of(chance: random.Random, **more: object) -> Trained:
    nproc = chance.choice((1, 1, 2))
    machines = chance.choice((2, 4)) if nproc == 2 else chance.choice((3, 4, 5))
    begins = more.pop("begins", True)
    job = Trained(chance, machines=machines, standbys=2, nproc=nproc, wait_s=60, **more)
    if begins:
        job.trains()
    return job


STANDSTILLS = (
    _busy, _busy, _late, _stopped, _again, _before, _at_the_end, _in_a_move, _all, _ways, _ways,
)  # fmt: skip


def play(chance: random.Random) -> None:
    """One standstill."""
    chance.choice(STANDSTILLS)(chance)
