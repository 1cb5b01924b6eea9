# SPDX-License-Identifier: Apache-2.0
"""Machines come, and go with what was known of it, in the middle of what a job does: what each is
told as it comes, who is shut out, what is said of it, and which numbers are never used again."""

import random

from courses.trained import SECOND_US, Trained
from trainmover.controller.effects import Fence, Send
from trainmover.controller.events import (
    AgentSaid,
    ControllerReturned,
    KillRequested,
    Lost,
    MachineJoined,
    MachinesLost,
    MoveRequested,
    StoreMoved,
)
from trainmover.controller.state import Job, MachineState, Outcome, Phase
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

PASSED = 1000
"""Numbers that may have been given out in a part of the journal that is lost."""
WHY = ("its link has ended", "it has been silent", "its link has ended")


def _of(chance: random.Random, **knobs: object) -> Trained:
    machines, standbys = chance.choice(((2, 2), (3, 2), (4, 3)))
    job = Trained(
        chance,
        machines=machines,
        standbys=standbys,
        nproc=chance.choice((1, 2)),
        wait_s=60,
        **knobs,
    )
    job.trains()
    job.log.clear()
    return job


def _joins(job: Trained, name: MachineId, **more: object) -> list[m.Order]:
    """What it is told at once."""
    job.told.clear()
    job.names += [name] if name not in job.names else []
    known: dict[str, object] = {"standby": True, "vault": f"{name}:2", "host": "h", **more}
    job.hear(MachineJoined(at_us=job.now_us, machine=name, **known))  # type: ignore[arg-type]
    said = [one for one in job.told if isinstance(one, Send) and one.machine == name]
    return [one.order for one in said]


def _one_comes(chance: random.Random) -> None:
    """It is told where groups meet, and what it has to know of a change that is under way."""
    job = _of(chance)
    begun_us = job.job.begun_us
    how = chance.choice(("rests", "recovers", "moves"))
    store = chance.choice(("", "h5:99"))
    if store:
        job.hear(StoreMoved(at_us=job.now_us, address=store))
    job.mute = {*job.ranks}
    name = job.names[0]
    if how == "recovers":
        lost = Lost(machine=name, why=WHY[0], heard_us=job.now_us)
        job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    elif how == "moves":
        job.hear(MoveRequested(at_us=job.now_us, request="m", machine=name))
    job.settles()
    job.now_us += 5
    told = _joins(job, MachineId("m9"), rack="r1")
    truth: list[m.Order] = [m.StoreAt(address=store)] if store else []
    change = job.job.change
    if how == "recovers":
        assert change is not None
        truth.append(m.Interrupt(epoch=change.epoch))
    started = m.StartWorkers(epoch=job.job.epoch_last, restarts=0)
    if told != [*truth, started]:
        raise Violation(f"m9 comes, the job {how}: {told} instead of {truth}")
    one = job.job.machines[MachineId("m9")]
    said = (one.standby, one.vault, one.host, one.rack, one.state)
    if said != (True, "m9:2", "h", "r1", MachineState.STARTING) or job.job.begun_us != begun_us:
        raise Violation(f"m9 has come: {one}; the job began at {job.job.begun_us}")


def _several_go(chance: random.Random) -> None:
    """At once, of which some was known: one incident says all of it."""
    job = _of(chance)
    spares = job.names[len(job.job.seats) :]
    gone = chance.sample(job.job.seats, chance.randint(1, min(2, len(job.job.seats) - 1)))
    gone += chance.sample(spares[:-1], chance.randint(0, 1)) if len(gone) == 1 else []
    heard = {name: job.now_us - 1000 * chance.randrange(1, 900) for name in gone}
    why = {name: chance.choice(WHY) for name in gone}
    noticed = {name for name in gone if chance.random() < 0.3}
    killed = chance.choice(gone) if chance.random() < 0.4 else None
    killed_us = job.now_us - SECOND_US
    if killed is not None:
        job.hear(KillRequested(at_us=killed_us, request="k", machine=killed))
    for name in sorted(noticed):
        leaving = m.Leaving(left_ms=60_000)
        job.hear(AgentSaid(at_us=job.now_us, machine=name, fact=leaving))
    unknown = Lost(machine=MachineId("m77"), why="?", heard_us=1)
    lost = [Lost(machine=name, why=why[name], heard_us=heard[name]) for name in gone]
    job.hear(MachinesLost(at_us=job.now_us, lost=[unknown, *lost]))
    if job.fenced() != gone:
        raise Violation(f"{gone} are to be shut out: {job.fenced()}")
    one = job.job.incidents[-1]
    heard_us = killed_us if killed is not None else min(heard.values())
    if one.marks != {"heard": heard_us, "detect": job.now_us}:
        raise Violation(f"{gone} were heard at {heard}, {killed} was killed: {one.marks}")
    by_why: dict[str, list[MachineId]] = {}
    for name in gone:
        known = ", as its owner had said" if name in noticed else ""
        by_why.setdefault(why[name] + known, []).append(name)
    truth = "; ".join(
        f"{' and '.join(names)} {'were' if len(names) > 1 else 'was'} lost: {its}"
        for its, names in by_why.items()
    )
    if one.cause != truth:
        raise Violation(f"{truth!r} is so, and it is said {one.cause!r}")
    if one.lost != tuple(gone):
        raise Violation(f"{gone} were lost: {one}")
    job.settles()
    job.rests(1)
    done = next(its for its in job.job.incidents if its.number == one.number)
    if done.outcome is not Outcome.DONE or {*gone} & {*job.job.seats}:
        raise Violation(f"{gone} were to be replaced: {job.job.seats}, {done}")
    before = job.job
    job.hear(MachinesLost(at_us=job.now_us, lost=[unknown, *lost]))
    if job.job != before or job.told:
        raise Violation(f"{gone} are gone, and are lost again: {job.told}")


def _controller_returns(chance: random.Random) -> None:
    """Numbers that it may have given out before are not given out again."""
    job = _of(chance)
    cut = chance.random() < 0.6
    epoch, runs, times = job.job.epoch_last, job.job.runs, chance.randint(1, 3)
    for _ in range(times):
        job.now_us += SECOND_US
        job.hear(ControllerReturned(at_us=job.now_us, cut=cut))
    if (job.job.takeovers, job.job.taken_over_us) != (times, job.now_us):
        raise Violation(f"{times} controllers have come back: {job.job.takeovers}")
    passed = PASSED * times if cut else 0
    name = job.job.seats[0]
    lost = Lost(machine=name, why=WHY[0], heard_us=job.now_us)
    job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    change = job.job.change
    if change is None or change.epoch != epoch + passed + 1:
        raise Violation(f"epoch {epoch} was the last, {passed} are left out: {change}")
    job.settles()
    said = m.StepsChanged(rank=Rank(0), step=job.step, trace="other", compiled="g")
    job.says(job.job.seats[0], 0, said)
    numbers = sorted(order.run for _, order in job.orders(m.WarmUp))
    if not numbers or numbers[0] <= runs + passed:
        raise Violation(f"run {runs} was the last, {passed} are left out: {numbers}")


def _other_torch(chance: random.Random) -> None:
    """Who joins in fresh processes turns out to have another torch: another is looked for."""
    job = _of(chance)
    new = MachineId("m9")
    for name in job.names[len(job.job.seats) :]:
        lost = Lost(machine=name, why=WHY[0], heard_us=job.now_us)
        job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    job.settles()
    _joins(job, new)
    slot = chance.randrange(len(job.job.seats))
    lost = Lost(machine=job.job.seats[slot], why=WHY[0], heard_us=job.now_us)
    job.hear(MachinesLost(at_us=job.now_us, lost=[lost]))
    change = job.job.change
    if change is None or [*change.joiners.values()] != [new]:
        raise Violation(f"{new} is the only one for slot {slot}: {change}")
    torch = chance.choice(("2", "3"))
    for local in range(job.nproc):
        if job.job.machines[new].state is not MachineState.STARTING:
            raise Violation(f"process {local} of {new} has yet to come up")
        up = m.WorkerUp(pid=9000 + local, address=f"{new}/{local}", torch=torch, version="7")
        job.says(new, local, up)
    change, one = job.job.change, job.job.machines[new]
    if (one.torch, one.version) != (torch, "7") or len(one.pids) != job.nproc:
        raise Violation(f"{new} runs torch {torch}: {one}")
    joins = change is not None and new in change.joiners.values()
    if joins is not (torch == "2") or change is None or bool(change.missing) is joins:
        raise Violation(f"{new} runs torch {torch}, and ranks torch 2: {change}")
    if torch == "3" and (one.state is not MachineState.COLD or "torch 3" not in one.note):
        raise Violation(f"{new} runs torch {torch}: {one}")


def _never_a_standby(chance: random.Random) -> None:
    """With another torch it is told to run nothing, also later; and nobody else is troubled."""
    job = _of(chance)
    new = MachineId("m9")
    _joins(job, new)
    job.told.clear()
    for local in range(job.nproc):
        up = m.WorkerUp(pid=9000 + local, address=f"{new}/{local}", torch="3", version="7")
        job.says(new, local, up)
    for _ in range(3):
        one = job.job.machines[new]
        if one.state is not MachineState.COLD or "it runs torch 3, the job's" not in one.note:
            raise Violation(f"{new} runs another torch: {one}")
        job.settles()
        job.passes(3600 * SECOND_US)
    if told := [one for one in job.log if isinstance(one, Send) and one.machine == new]:
        raise Violation(f"{new} is of no use, and is told {told}")
    if job.job.change is not None or job.job.incidents:
        raise Violation(f"{new} is of no use, and all stand: {job.job.change}")


def _before_the_script(chance: random.Random) -> None:
    """A process ends before any has begun: that is the end; of a standby's there are others."""
    spec = m.JobSpec(run_id="comes", argv=[], machines=2, standbys=1)
    job = Trained.__new__(Trained)
    job.job, job.told, job.log, job.now_us, job.names = Job(spec), [], [], SECOND_US, []
    job.nproc = 1
    first_us = job.now_us
    for name, standby in (("m1", False), ("m2", False), ("m3", True)):
        _joins(job, MachineId(name), standby=standby)
        job.now_us += 7
    if job.job.begun_us != first_us:
        raise Violation(f"the first came at {first_us}: {job.job.begun_us}")
    name = MachineId(chance.choice(("m1", "m2", "m3")))
    code, note, words = chance.choice(
        ((-9, "", "signal 9)"), (3, "no memory", "exit status 3: no memory)"), (0, "", "status 0)"))
    )
    job.agent_says(name, m.WorkerExited(local_rank=0, pid=5, code=code, note=note))
    end = job.end()
    if end is None or end.code != 1 or f"worker 0 of {name} ended (" not in end.text:
        raise Violation(f"a process of {name} has ended before the job began: {end}")
    if words not in end.text or job.job.phase is not Phase.ENDED:
        raise Violation(f"it ended with {words}: {end}")
    if any(isinstance(one, Fence) for one in job.told):
        raise Violation(f"nobody is shut out: {job.told}")


def play(chance: random.Random) -> None:
    """One of them."""
    ways = (
        _one_comes, _one_comes, _several_go, _several_go, _controller_returns, _other_torch,
        _never_a_standby, _before_the_script,
    )  # fmt: skip
    chance.choice(ways)(chance)
