# SPDX-License-Identifier: Apache-2.0
"""Moves that people ask for, stage by stage: nobody stops before all is ready, and what befalls a
move before the switch is told to who asked, while the job trains on.
"""

import random
from collections import Counter

from courses.change.moving import STAGES, Moving
from courses.trained import Trained
from trainmover.controller.effects import Answer
from trainmover.controller.events import (
    CordonRequested,
    Lost,
    MachinesLost,
    MoveRequested,
    StoreMoved,
)
from trainmover.controller.state import Kind, MachineState, Outcome, Stage
from trainmover.ids import MachineId, Rank, Slot, Step
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation


def _done(chance: random.Random) -> None:
    """Also where the store is lost meanwhile."""
    move = Moving(chance)
    move.begins()
    if chance.random() < 0.3:
        move.goes(chance.choice(STAGES[:3]))
        move.says_some()
        _store_moves(move)
    move.goes()
    move.is_over()


def _store_is_another(move: Moving) -> None:
    job = move.job
    job.goes_on()
    job.hear(StoreMoved(at_us=job.now_us, address="other:1"))
    told = job.orders(m.StoreAt)
    if [name for name, _ in told] != sorted(job.job.machines) or told[0][1].address != "other:1":
        raise Violation(f"all are told where the store is: {told}")


def _store_moves(move: Moving) -> None:
    """Who has begun to meet begins anew, under a number that is new."""
    job, epoch = move.job, move.job.epoch
    _store_is_another(move)
    if move.at == "prepare":
        move.said = []
        if job.epoch != epoch + 1 or move.one.epoch != job.epoch:
            raise Violation(f"it is prepared under a new number: {job.epoch}, {move.one}")
        order = m.Prepare(epoch=job.epoch)
        job.follows(dict.fromkeys(move.after.values(), order), "the store is another")
    elif job.epoch != epoch:
        raise Violation(f"nobody meets, and there is a new epoch: {job.told}")
    if move.at == "bind":
        _runs_begin_again(move)


def _runs_begin_again(move: Moving) -> None:
    """Of those whose ranks may be about to meet, that is where there are several on a machine."""
    job = move.job
    said = Counter(name for name, _, _ in move.said)
    again = {name for name in move.joins.values() if 1 < job.nproc != said[name]}
    started = {name for name, _ in job.orders(m.StartWorkers)}
    if started != again:
        raise Violation(f"{again} begin their run anew, {move.said}: {started}")
    for name in again:
        job.catches_up(name)
    bound = {name: order.slot for name, order in job.orders(m.Bind)}
    if bound != {name: slot for slot, name in move.joins.items() if name in again}:
        raise Violation(f"{again} begin their run anew: {bound}")
    move.said = [one for one in move.said if one[0] not in again]


def _store_moves_later(chance: random.Random) -> None:
    """Runs that several processes of a machine make side by side begin anew, and so does who leaves
    one; not he who has trained, and has what others may need."""
    move = Moving(chance)
    job, has_cut = move.job, chance.random() < 0.5
    for rank in job.ranks if has_cut else ():
        said = m.Snapped(
            rank=Rank(rank), epoch=job.job.epoch, step=move.step, vault="m1:1", bytes=7,
            cost_us=10, step_us=100_000,
        )  # fmt: skip
        job.rank_says(rank, said)
    move.begins()
    move.goes()
    runs = {name for name, _ in (*job.orders(m.WarmUp), *job.orders(m.Hold))}
    leave = {*move.leaves.values()} - {*job.job.cordoned}  # Who is drained is left alone.
    again = runs | (set() if has_cut else leave)
    _store_is_another(move)
    started = {name for name, _ in job.orders(m.StartWorkers)}
    if started != (again if job.nproc > 1 else set()):
        raise Violation(f"{again} begin anew, {job.nproc} on each: {started}")


def _cancelled(chance: random.Random) -> None:
    """Before the switch."""
    move = Moving(chance)
    move.begins()
    how = chance.choice(("ends", "lost", "crash", "unprepared"))
    if move.job.job.spec.world_size == 1:
        how = "lost"  # With its only script it would end itself.
    move.goes("prepare" if how == "unprepared" else chance.choice(STAGES[:3]))
    move.says_some()
    job, joiner = move.job, chance.choice([*move.joins.values()])
    rank = Rank(chance.choice([*job.ranks]))
    if how == "ends":
        done = m.Finished(rank=rank, step=Step(9), code=0, digest="d", attached=True)
        job.hears((move.seats[rank // job.nproc], rank % job.nproc, done))
        move.is_cancelled("the script ended first", Outcome.CANCELLED, set())
    elif how == "lost":
        move.loses(joiner)
        move.is_cancelled(f"the joiner failed ({joiner} was lost", Outcome.CANCELLED, {joiner})
    elif how == "crash":
        pid = job.job.machines[joiner].pids[0]
        job.hears((joiner, None, m.WorkerExited(local_rank=0, pid=pid, code=-9)))
        move.is_cancelled("the joiner failed (worker 0 of", Outcome.CANCELLED, {joiner})
    else:
        name = move.after[rank // job.nproc]
        fact = m.Prepared(rank=rank, epoch=job.epoch, reason="no port")
        job.hears((name, rank % job.nproc, fact))
        why = f"phase 1 failed on rank {rank} (no port)"
        move.is_cancelled(why, Outcome.FAILED, set())
    if how == "ends":
        return
    job.settles()
    free = {name: job.job.machines[name].state for name in job.job.machines}
    if any(
        free.get(one, MachineState.WARM) is not MachineState.WARM for one in move.joins.values()
    ):
        raise Violation(f"{move.joins} stand by again: {free}")


def _overtaken(chance: random.Random) -> None:
    """Ranks are lost meanwhile, or a link is: the job recovers, also with who was to join."""
    move = Moving(chance)
    move.begins()
    move.goes(chance.choice(STAGES))
    if move.at == "switch" and chance.random() < 0.5:
        move.loads()
    else:
        move.says_some()
    job, switches = move.job, move.at == "switch"
    slot = chance.choice([*move.seats])
    name = move.seats[slot]
    gone: list[MachineId] = []
    vacant: set[int] = set()
    alone = len(move.seats) == 1 and slot in move.leaves
    more = len(job.names) > len(move.after) + len(move.joins)
    if switches and chance.random() < 0.3:
        rank = chance.choice(job.ranks_of([*move.joins]))
        unproven = m.Unproven(rank=rank, epoch=job.epoch, holders={})
        job.hears((move.after[rank // job.nproc], rank % job.nproc, unproven))
        why = f"{move.one.machine} could not be moved: its replicas have parted"
    elif alone or chance.random() < 0.3:
        now = job.epoch if switches else job.job.epoch
        rank = job.ranks_of([slot])[0]
        said = m.Interrupted(rank=rank, epoch=now, reason="reset by peer")
        job.hears((move.after[slot] if switches else name, rank % job.nproc, said))
        why = f"rank {rank} lost a link (reset by peer)"
    elif more and chance.random() < 0.4:
        gone = [chance.choice([*move.joins.values()]), name]
        move.loses(*gone)
        why, vacant = f"{gone[0]} and {name} were lost: its link has ended", {slot}
    else:
        gone = [name]
        move.loses(name)
        why, vacant = f"{name} was lost: its link has ended", {slot}
    move.is_answered(f"The move was overtaken: {why}.\nThe job recovers", ok=False)
    if move.one.outcome is not Outcome.CANCELLED or why not in move.one.note:
        raise Violation(f"{why}, and the move is {move.one}")
    change, new = job.job.change, job.job.incidents[-1]
    if new.kind is not Kind.RECOVERY or change is None or change.stage is not Stage.DRAIN:
        raise Violation(f"{why}, and there is {new}, {change}")
    if {*change.joiners} != vacant or new.number != move.one.number + 1:
        raise Violation(f"{why}: {vacant} are vacant, {change}")
    _goes_on(move, vacant, gone)


def _goes_on(move: Moving, vacant: set[int], gone: list[MachineId]) -> None:
    """Who was to take a slot that is vacant does, and is not bound again; others are let go."""
    job, change = move.job, move.job.job.change
    assert change is not None
    kept = {s: n for s, n in move.joins.items() if s in vacant and n not in gone}
    if any(change.joiners.get(Slot(s)) != name for s, name in kept.items()):
        raise Violation(f"{kept} were about to join: {change.joiners}")
    if again := [name for name, _ in job.orders(m.Bind) if name in kept.values()]:
        raise Violation(f"{again} are bound already")
    let_go = {name for s, name in move.joins.items() if s not in kept} - {*gone}
    if {name for name, _ in job.orders(m.Leave)} != let_go:
        raise Violation(f"{let_go} are let go: {job.orders(m.Leave)}")
    told = [name for name, order in job.orders(m.Interrupt) if order.epoch == job.epoch]
    if told != sorted(job.job.machines):
        raise Violation(f"all leave their epoch: {told}")
    parked = {*kept.values()}
    job.step = move.step
    for name in parked:
        for said in job.park({s: n for s, n in kept.items() if n == name}):
            job.hears(said)
    job.settles()
    job.rests(1)
    if job.job.change is not None or job.job.incidents[-1].outcome is not Outcome.DONE:
        raise Violation(f"it is mended: {job.job.incidents[-1]}, {job.job.change}")


def _ends(chance: random.Random) -> None:
    """Where going on could train on wrong data."""
    move = Moving(chance)
    move.begins()
    job = move.job
    if job.job.spec.world_size > 1 and chance.random() < 0.5:
        move.goes("pause")
        *most, last = move.facts()
        for said in most:
            job.hears(said)
        name, local, fact = last
        other = m.AtBoundary(rank=fact.rank, epoch=fact.epoch, committed=Step(move.step + 1))
        job.hears((name, local, other))
        job.ends(f"paused at different steps: [{move.step}, {move.step + 1}]")
        return
    move.goes("switch")
    rank = chance.choice(job.ranks_of([*move.joins]))
    name = move.after[rank // job.nproc]
    job.hears((name, rank % job.nproc, job.loaded(rank, rank, wrong=True)))
    job.ends(f"Rank {rank} did not receive the state its source sent")


def _refused(chance: random.Random) -> None:
    """Nothing is done, and who asks is told why."""
    how = chance.choice(("unknown", "standby", "moves", "recovers", "early", "no standby", "ends"))
    if how == "early":
        young = Trained(chance, machines=2, standbys=1)
        _says_no(young, "m1", "the first steps are not recorded yet")
        lost = Lost(machine=MachineId("m2"), why="it is gone", heard_us=young.now_us)
        young.hear(MachinesLost(at_us=young.now_us, lost=[lost]))
        _says_no(young, "m1", "The job is starting: nothing was moved.")
        return
    move = Moving(chance)
    job = move.job
    name, spare = chance.choice([*move.seats.values()]), job.names[len(move.seats) :]
    if how == "unknown":
        _says_no(job, "m77", "There is no machine m77.")
    elif how == "standby":
        _says_no(job, spare[0], f"{spare[0]} holds no ranks.")
    elif how == "moves":
        move.begins()
        move.goes(chance.choice(STAGES))
        _says_no(job, name, "a move is running")
    elif how == "recovers" and len(move.seats) > 1:
        move.loses(name)
        left = next(one for one in move.seats.values() if one != name)
        _says_no(job, left, "a recovery is running")
    elif how == "no standby":
        for one in spare:
            job.hear(CordonRequested(at_us=job.now_us, request=one, machine=one, reason="dust"))
        words = "no standby is left (" + "; ".join(f"{one} is cordoned (dust)" for one in spare)
        _says_no(job, name, words)
    elif how == "ends":
        done = m.Finished(rank=Rank(0), step=Step(9), code=0, digest="d", attached=True)
        if job.job.spec.world_size > 1:
            job.rank_says(0, done)
            _says_no(job, name, "the script is ending")


def _says_no(job: Trained, name: str, words: str) -> None:
    job.told.clear()
    before = job.job
    job.hear(MoveRequested(at_us=job.now_us, request="no", machine=name))
    said = [one for one in job.told if isinstance(one, Answer)]
    if len(said) != 1 or said[0].ok or said[0].request != "no" or words not in said[0].text:
        raise Violation(f"{name} cannot be moved, {words!r}: {said}")
    if job.job != before or len(job.told) > 1:
        raise Violation(f"{name} cannot be moved, and there follows {job.told}")


WAYS = (
    _done, _done, _store_moves_later, _cancelled, _overtaken, _overtaken, _ends, _refused,
)  # fmt: skip


def play(chance: random.Random) -> None:
    """One move."""
    chance.choice(WAYS)(chance)
