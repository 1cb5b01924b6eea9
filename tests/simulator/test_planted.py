"""Bugs of one line, planted in the code that decides: the simulation finds each of them.

The last column says what the bug would do to a job.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.planting import planted
from trainmover.agent import outbox
from trainmover.server.history import past
from trainmover.server.machines import admission
from trainmover.simulator.faults import EVERYTHING, Faults, only
from trainmover.simulator.story import plan_of, play

SEEDS = 600
"""At most: the search ends at the first that finds it, mostly within ten."""
LOADED = (outbox, admission, past)

BUGS = {
    "some ranks in the gate count as all: one is told a step it has not computed": (
        "controller.change.verdict",
        "everybody_in = len(in_gate) == len(positions) > 0",
        "everybody_in = len(in_gate) > 0",
    ),
    "a recovery that fails takes the same epoch again: who has heard of it ignores the second": (
        "controller.change.interruption",
        "    epoch = Epoch(job.epoch_last + 1)",
        "    epoch = Epoch(job.epoch + 1)",
    ),
    "training goes on before every rank has exchanged its members: the others never follow": (
        "controller.change.switching",
        "if too_few(job, change, len(change.switched) - joiners):\n        return job, ()\n    "
        "if not {*survivors(job, change), *joining(job, change)} <= change.switched:",
        "if not change.switched:",
    ),
    "a machine that joins in a recovery is waited for, and was asked nothing: no verdict": (
        "controller.machines",
        "if change is None or change.kind is not Kind.RECOVERY:",
        "if change is None or change.kind is not Kind.MOVE:",
    ),
    "a machine that is cordoned is chosen all the same": (
        "controller.standby.joiners",
        "if m.id not in cordoned",
        "if m.id",
        "cordon,death,move",
    ),
    "a standby is taken for two slots": (
        "controller.standby.joiners",
        "and machine.id not in taken",
        "and machine.id",
        "death,crash,move",
    ),
    "a successor forgets which facts it has: agents say them twice": (
        "server.machines.accounts",
        "self.facts = max(self.facts, number)",
        "self.facts = 0",
        "controller,crash,death",
    ),
    "after a takeover each machine lacks one order": (
        "server.machines.accounts",
        "return pending[len(pending) - missing :]",
        "return pending[len(pending) - missing + 1 :]",
    ),
    "an agent throws away one fact too many: the controller's successor never hears it": (
        "agent.outbox",
        "while self.kept and self.dropped < number:",
        "while self.kept and self.dropped <= number:",
    ),
    "what a joiner prints is never shown": (
        "agent.decide",
        "return Place(slot=slot, bound=True)",
        "return Place(slot=slot)",
    ),
    "a cut counts as complete with one snapshot missing: nobody can go back to it": (
        "controller.keep.cuts",
        "if len(job.snapped) == job.spec.world_size else",
        "if len(job.snapped) >= job.spec.world_size - 1 else",
    ),
    "a move is answered again and again": (
        "controller.change.move",
        'return amend(job, last.number, request=""), (answer,)',
        "return job, (answer,)",
    ),
    "an incident never ends, and no move is taken on any more": (
        "controller.change.incidents",
        "if len(ranks.union(job.finished)) < job.spec.world_size:",
        "if len(ranks.union(job.finished)) <= job.spec.world_size:",
        "move",
    ),
    "a successor keeps no orders for the machines that come back": (
        "server.history.past",
        "self.accounts.journaled(event, away=True)",
        "self.accounts.journaled(event, away=False)",
    ),
    "ranks that meet in a store that has died are left there": (
        "controller.store",
        "        case Stage.SWITCH:\n",
        "        case Stage.PAUSE:\n",
        "store,death,move",
    ),
    "a rank's buddy is the next machine, also where that is in its own rack": (
        "controller.change.buddies",
        "if domains[at] != domains[place])",
        "if at != place)",
    ),
    "the machine that keeps the first copy of a snapshot is to keep the second one too": (
        "controller.change.buddies",
        "if name != keeper]",
        "if name]",
    ),
    "a done move is never answered: who has asked waits for ever": (
        "controller.change.move",
        'return amend(job, last.number, request=""), (answer,)',
        'return amend(job, last.number, request=""), ()',
    ),
    "a checkpoint is published with the state of one rank missing": (
        "controller.keep.checkpoints",
        "return len(writing.wrote) == job.spec.world_size",
        "return len(writing.wrote) >= job.spec.world_size - 1",
    ),
    "the job ends before the process of rank 0 has left": (
        "controller.ending",
        "if rank not in job.exited\n",
        "if rank not in job.exited and rank\n",
    ),
    "a rank that is overtaken at a switchover waits for its end: all others wait for it": (
        "rank.standing",
        "return False if self.ordered > epoch else NOT_YET",
        "return NOT_YET",
    ),
    "a rank whose step was cut short does not hear that all go back": (
        "rank.standing",
        """            if self.exit or self.goes_back:
                raise Unwind
            return NOT_YET""",
        "            return NOT_YET",
    ),
    "a verdict to commit is taken for one to run the step again": (
        "rank.standing",
        "if verdict.committed < step:",
        "if verdict.committed <= step:",
        "death,crash",
    ),
    "a run that is over still holds its rank": (
        "rank.standing",
        "self.live = self.finished = False",
        "self.finished = False",
    ),
    "rows that were told to an agent that dies with them are lost": (
        "rank.told",
        "return [*chain.from_iterable([kept for _, kept in self._told]), *self._kept]",
        "return [*self._kept]",
        "controller,death,power",
    ),
    "steps that waited for those of another worker are left out": (
        "agent.together",
        "same.append(fact)  # type: ignore[arg-type]",
        "same[:] = [fact]",
    ),
    "a process drops the snapshot that all could go back to": (
        "rank.cuts",
        "at for at in self.held if at < step",
        "at for at in self.held if at <= step",
    ),
    "every loss sends all ranks back to the newest cut, also where others hold the state": (
        "controller.change.recovery",
        "alone = [rank for rank in lost if not replicas(job, rank, stay)]",
        "alone = list(lost)",
    ),
    "a record is looked for where it is not: all go back though they could stay": (
        "controller.change.recovery",
        "resume = Step(change.committed + 1)",
        "resume = Step(change.committed + 3)",
    ),
    "a standby that still warms up is not taken: the job waits for a machine, or ends": (
        "controller.standby.joiners",
        "        if machine.state in _PREFERENCE\n",
        "        if machine.state in _PREFERENCE[:1]\n",
    ),
    "a machine that has joined while the job waits is not taken": (
        "controller.change.recovery",
        "    if not more:\n        return job\n    joiners",
        "    if more:\n        return job\n    joiners",
    ),
    "standbys are never held at a first step: a loss costs what it would cost without": (
        "controller.standby.warming",
        'if job.spec.readiness != "held":',
        'if job.spec.readiness == "held":',
    ),
    "that a machine is not cordoned any more is answered as if it had failed": (
        "controller.standby.cordon",
        "return without_cordon(job, machine), (Answer(event.request, ok=True, text=text),)",
        "return without_cordon(job, machine), (Answer(event.request, ok=False, text=text),)",
        "cordon",
    ),
    "all went back, and the incident says that a step was run again": (
        "controller.change.going_back",
        'return {"rung": 2, "why_rung": why, "redone": redone}',
        'return {"rung": 1, "why_rung": why, "redone": redone}',
    ),
    "no cut follows the first one": (
        "controller.keep.cuts",
        "    job = replace(job, cut=cut, snapped=Facts())\n",
        "    job = replace(job, cut=job.cut or cut, snapped=Facts())\n",
    ),
    "a verdict does not wait for vaults: records that are there count as lost": (
        "controller.change.recovery",
        "len(change.positions)) or not _records_known(job, change):",
        "len(change.positions)):",
    ),
    "a move that is cancelled is never answered": (
        "controller.change.move",
        "effects.append(Answer(change.request, ok=False, text=text, incident=change.incident))",
        "pass",
        "move,death",
    ),
    "a process that cannot be killed is waited for": (
        "controller.standstill.hanging",
        "        spared = waited >= END_US and can_be_replaced(job, machine)",
        "        spared = waited < 0",
        "stuck",
    ),
    "a machine that was left for slowness may take ranks again": (
        "controller.policies.stragglers.answer",
        '    job = _with_cordon(job, machine, Cordon(event.at_us, f"slow: {why}", spared=True))\n',
        "",
        "straggle",
    ),
    "a job ends while a machine is there that is only slow": (
        "controller.standby.joiners",
        "    left = [slot for slot in slots if slot not in joiners]\n",
        "    left: list[Slot] = []\n",
        "straggle,death",
    ),
    "a slow machine takes ranks again though a standby is there": (
        "controller.standby.joiners",
        "    left = [slot for slot in slots if slot not in joiners]",
        "    joiners, left = {}, slots",
        "straggle,death",
    ),
    "a rank that has more to do is moved": (
        "controller.policies.stragglers.answer",
        'if event.kind == "rank" or slot is None:',
        "if slot is None:",
        "heavy",
    ),
    "a rank is moved for slowness again and again, though that is in vain": (
        "controller.policies.stragglers.answer",
        "if _in_vain(job, machine):",
        "if not moves and slot is None:",
        "straggle,arrive",
    ),
    "a machine that has just taken ranks is left before anybody has measured": (
        "controller.policies.stragglers.answer",
        "if any(move.effect is Effect.OPEN and move.joiner == machine for move in moves):",
        "if not moves and slot is None:",
        "straggle,arrive",
    ),
    "a roll has more machines away at once than it may": (
        "controller.policies.plans.roll",
        "some = roll.left[: max(roll.at_once - len(roll.away), 0)]",
        "some = roll.left[: roll.at_once]",
        "roll",
    ),
    "a placement is said to be done before its last machine has its place": (
        "controller.policies.plans.place",
        "if not wanted:",
        "if len(wanted) < 2:",
        "place",
    ),
    "what an examination has found is never judged": (
        "controller.policies.health.examine",
        "        if one.told and not one.judged and job.phase is not Phase.ENDED:",
        "        if one.told and one.judged and job.phase is not Phase.ENDED:",
        "examine",
    ),
    "who asks for the health of a machine that is lost then is never told": (
        "controller.policies.health.examine",
        "    return job, answers + more\n",
        "    return job, more\n",
        "examine,death",
    ),
    "a placement that no standby can be found for waits for ever": (
        "controller.policies.plans.place",
        'return stopped(job, plan, "no standby can take ranks")',
        "return job, ()",
        "place,death",
    ),
    "a roll moves machines whose turn it is not": (
        "controller.policies.plans.roll",
        "    roll = _in_turn(roll, names)\n    begun",
        "    begun",
        "roll",
    ),
    "a machine that will be taken away keeps its ranks until it is": (
        "controller.policies.maintenance.leaving",
        "if (cordon.until_us or cordon.failing) and",
        "if cordon.failing and",
        "notice",
    ),
    "a machine that is about to fail keeps its ranks until it does": (
        "controller.policies.maintenance.leaving",
        "if (cordon.until_us or cordon.failing) and",
        "if cordon.until_us and",
        "sign",
    ),
    "of machines that are drained only the first is kept from taking ranks": (
        "controller.policies.maintenance.drain",
        "    for name in names:\n        job = cordoned_by_people",
        "    for name in names[:1]:\n        job = cordoned_by_people",
        "drain",
    ),
    "of machines that are drained one is moved, and the answer is that all are": (
        "controller.policies.maintenance.drain",
        "begin_moves(job, seated, cause",
        "begin_moves(job, seated[:1], cause",
        "drain",
    ),
    "whoever only watches takes out machines that may fail": (
        "controller.policies.anomalies.answer",
        'if job.spec.anomalies != "act":',
        'if job.spec.anomalies == "off":',
        "sign",
    ),
    "a few lines that every kernel writes cost a machine": (
        "controller.policies.anomalies.told",
        "if more < TOO_MANY:",
        "if more < 2:",
        "sign",
    ),
    "what every machine says takes all of them out": (
        "controller.policies.anomalies.answer",
        "if len(failing(job)) >= max(1, len(job.machines) // PART):",
        "if len(failing(job)) >= len(job.machines):",
        "sign",
    ),
    "whoever only watches moves machines": (
        "controller.policies.stragglers.answer",
        'if job.spec.stragglers != "act":',
        "if slot is None:",
        "straggle",
    ),
    "what has made it worse is left so": (
        "controller.policies.stragglers.answer",
        "if effect is Effect.VAIN or _tries(job, move.slot) > 1:",
        "if effect is not Effect.HELPED:",
        "straggle,arrive",
    ),
    "a machine that is lost again and again is taken back at once": (
        "controller.standby.flapping",
        "if len(losses) < 2:",
        "if len(losses) < 20:",
        "death,reset",
    ),
    "a step is committed though the records of the next are nowhere": (
        "controller.change.verdict",
        "if everybody_in and _all_held(lost, held, Step(past + 2)):",
        "if everybody_in:",
        "death,crash,arrive",
    ),
    "vaults that speak of another epoch count": (
        "controller.change.reports",
        "    if change is None or change.epoch != fact.epoch:",
        "    if change is None:",
        "death,crash,move",
    ),
    "a joiner that is beyond the cut is not unwound": (
        "controller.change.going_back",
        "        elif trains or beyond:",
        "        elif trains:",
        "death,power,crash",
    ),
    "epochs of a part of the journal that is lost are used again": (
        "controller.machines",
        "passed = NUMBERS_PASSED if event.cut else 0",
        "passed = 0",
        "torn,death",
    ),
    "who comes later is not told where the store is": (
        "controller.machines",
        "if job.store else ()",
        "if job.store and not job.machines else ()",
        "store,death,move",
    ),
    "who has given up its ranks is not told to leave": (
        "controller.change.switching",
        "            effects.append(Send(machine, Leave(epoch=change.epoch)))",
        "            pass",
        "move,death",
    ),
    "what follows from a decision waits for the next event": (
        "controller.decide",
        "if job is before or job == before:",
        "if before is not None:",
    ),
    "a grave line is not taken for a finding": (
        "controller.policies.anomalies.told",
        "    if not symptom.grave:\n",
        "    if symptom.grave:\n",
        "sign",
    ),
    "a machine that says that it is broken may take ranks": (
        "controller.policies.anomalies.answer",
        "        job = with_cordon(job, seen.machine, replace(cordon, failing=True))\n",
        "",
        "sign",
    ),
    "a plan that is stopped goes on, and the answer is that it has stopped": (
        "controller.policies.plans.steering",
        """with_plan(job, plan), (Answer(event.request, ok=True, text=text),)
    plan = go_on""",
        """job, (Answer(event.request, ok=True, text=text),)
    plan = go_on""",
        "roll,place,death",
    ),
    "a roll is refused, and begins": (
        "controller.policies.plans.steering",
        'ok=True, text=f"{plan.title} begins',
        'ok=False, text=f"{plan.title} begins',
        "roll",
    ),
    "a machine is said to have been told to die, and was not": (
        "controller.machines",
        "        Send(machine, Die()),\n",
        "",
        "drill",
    ),
    "all went back, and the incident says that no step was made again": (
        "controller.change.going_back",
        "    redone = max(redone, incident(job, job.change.incident).redone)\n",
        "    redone = incident(job, job.change.incident).redone\n",
        "death,crash,power",
    ),
    "what ranks have said for an older epoch counts": (
        "controller.change.reports",
        "change.epoch or not _speaks_for(job, change, machine, fact):\n"
        "        return job, ()\n    rank = fact.rank",
        "fact.epoch or not _speaks_for(job, change, machine, fact):\n"
        "        return job, ()\n    rank = fact.rank",
        "death,move",
    ),
    "a process that goes on is still held to be stopped": (
        "controller.standstill.hanging",
        "    disturbed.pop((machine, fact.local_rank), None)\n",
        "",
        "stop",
    ),
    "of the runs of a machine's processes the shortest counts as what it takes": (
        "controller.standby.attest",
        "warm_ms=max(before.warm_ms, fact.warm_ms)",
        "warm_ms=min(before.warm_ms, fact.warm_ms)",
    ),
    "a standby is believed to hold another run than it was told to": (
        "controller.standby.standbys",
        "with_machine(job, machine, held=current.work, doubt=None)",
        "with_machine(job, machine, held=Slot(0), doubt=None)",
    ),
    "a move that a loss has overtaken is said to have failed": (
        "controller.change.interruption",
        "outcome = Outcome.CANCELLED if overtaken else Outcome.FAILED",
        "outcome = Outcome.FAILED",
        "move,death",
    ),
    "of machines that are lost together only one is named": (
        "controller.change.losses",
        "        lost=lost,\n",
        "        lost=lost[:1],\n",
        "rack",
    ),
    "a drill is heard of when its machine was lost, and not when it was told to die": (
        "controller.machines",
        "    heard_us = min(killed or [one.heard_us for one in lost])\n",
        "    heard_us = min(one.heard_us for one in lost)\n",
        "drill",
    ),
    "a machine is not moved for slowness though that is worth its pause": (
        "controller.policies.stragglers.answer",
        "if (event.own_ms - event.usual_ms) * steps <= pause_ms(job):",
        "if (event.own_ms - event.usual_ms) <= pause_ms(job):",
        "straggle",
    ),
    "a stop waits for a checkpoint that nobody can write": (
        "controller.keep.stopping",
        "job.all_recorded and bool(job.spec.checkpoint)",
        "job.all_recorded",
    ),
    "a process that is stopped is waited for ten times as long": (
        "controller.standstill.hanging",
        "(STOPPED_US if one.state in _STOPPED else DEAF_US)",
        "(DEAF_US if one.state in _STOPPED else DEAF_US)",
        "stop",
    ),
    "what a loss would cost leaves out the memory that has to travel": (
        "controller.standby.attest",
        "return start + run + _state_ms(job, attest) + _fixed_ms(job)",
        "return start + run + _fixed_ms(job)",
    ),
    "examinations that are under way are counted twice": (
        "controller.policies.health.examine",
        "of, known.untold + 1)",
        "of, known.untold + 2)",
        "examine",
    ),
    "a roll is refused though there are standbys": (
        "controller.policies.plans.roll",
        "if not spare(job):",
        "if any(name in seated for name in names):",
        "roll",
    ),
    "a slot is taken by any that is warm, not by who holds its run": (
        "controller.standby.joiners",
        "        machine.held != slot,\n",
        "        False,\n",
    ),
    "standbys warm up before there is anything to run": (
        "controller.standby.warming",
        "may_warm = job.all_recorded and",
        "may_warm =",
    ),
    "what a process would cost is said, though its machine is gone": (
        "controller.change.options",
        "    if len(there) < len(slots):\n",
        "    if len(there) > len(slots):\n",
        "death",
    ),
    "a machine is given up for links that it had a while ago": (
        "controller.standstill.probing",
        "fewer = {name for name in in_between if lost[name] > least}",
        "fewer = seats",
        "cut,partition,stop",
    ),
    "a script that raises is taken for a machine that is lost": (
        "controller.ending",
        "    if fact.misled or _is_left(job, machine, fact.rank):",
        "    if fact.rank or fact.misled or _is_left(job, machine, fact.rank):",
    ),
}


def violations(faults: str = "") -> Iterator[str]:
    """Seed by seed; mostly ""."""
    chosen = only(faults.split(",")) if faults else EVERYTHING
    for seed in range(SEEDS):
        yield violation(seed, chosen)


def violation(seed: int, faults: Faults) -> str:
    """Code that raises has broken a promise too: the job would have ended there."""
    try:
        return play(plan_of(seed, seconds=6, faults=faults)).violation
    except Exception as error:  # noqa: BLE001  Whatever the planted code comes to.
        return repr(error)


@pytest.mark.turns(24)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", BUGS)
def test_a_planted_bug_is_found(what: str) -> None:
    module, old, new, *faults = BUGS[what]
    with planted(module, old, new):
        assert any(violations(*faults)), f"{SEEDS} seeds did not find it: {what}"


@pytest.mark.parametrize("what", BUGS)
def test_every_bug_can_still_be_planted(what: str) -> None:
    with planted(*BUGS[what][:3]):
        pass


SLOWNESS = {
    "a machine that is slow is never said to be": (
        "excess",
        "return own_us > usual_us * SLOW and",
        "return own_us > usual_us * 9 and",
    ),
    "one that is slow is seen, and not told of": (
        "pace",
        "return [self._found(job, rank, step, steps, at_us)] if steps else []",
        "return []",
    ),
    "nobody measures what a move has come to": (
        "pace",
        "        self._measured = move.incident\n",
        "        return []\n",
    ),
    "a machine is moved on mere suspicion": (
        "answer",
        "held, effects = hold_for(job, slot, since_us)",
        'held, effects = begin_move(job, event.machine, "", request="", at_us=event.at_us)',
    ),
    "a finding is made of the steps before those that it names": (
        "pace",
        "own_us, usual_us, busier = medians(seen.last(steps))",
        "own_us, usual_us, busier = medians([*seen.samples][:-steps])",
    ),
    "a finding shows steps as if it had seen more of them": (
        "pace",
        "since = min(steps, SHOWN)",
        "since = SHOWN",
    ),
    "what was measured is not kept": ("answer", "        own_after_ms=event.own_ms,\n", ""),
}


@pytest.mark.turns(4)
@pytest.mark.parametrize("what", SLOWNESS)
def test_slow_machines_have_to_be_found(what: str) -> None:
    """In worlds that are long quick before one machine is slow."""
    module, old, new = SLOWNESS[what]
    seldom = replace(only(["straggle"]), pause_us=6_000_000)
    with planted(f"controller.policies.stragglers.{module}", old, new):
        for seed in range(20):
            plan = plan_of(seed, seconds=30, faults=seldom)
            plan.world |= {"stragglers": "act", "stages": 1, "alone": False, "once": ()}
            if play(plan).violation:
                return
    pytest.fail(f"20 seeds did not find it: {what}")


COLD = {
    "a cold machine is tried again at once": (
        ">= min(TRY_AGAIN_US << machine.tries, TRY_AGAIN_US_MAX):",
        ">= 0:",
    ),
    "a cold machine is tried again no sooner for being there": (
        ">= min(TRY_AGAIN_US << machine.tries, TRY_AGAIN_US_MAX):",
        ">= TRY_AGAIN_US_MAX:",
    ),
    "standbys never prove again what they can": (
        "if oldest is None or at_us - ages[oldest] < ATTEST_AGAIN_US:",
        "if oldest is None or at_us >= ages[oldest]:",
    ),
    "standbys prove what they can at every minute": (
        "if oldest is None or at_us - ages[oldest] < ATTEST_AGAIN_US:",
        "if oldest is None:",
    ),
}


@pytest.mark.turns(4)
@pytest.mark.parametrize("what", COLD)
def test_standbys_have_to_be_tended_for_long(what: str) -> None:
    """In worlds of half an hour in which hardly anything happens."""
    with planted("controller.standby.warming", *COLD[what]):
        for seed in range(6):
            faults = replace(only(["arrive"]), pause_us=600_000_000)
            plan = plan_of(seed, seconds=1800, faults=faults)
            plan.world |= {"step_us": 10_000_000, "unfit": (("m5", "p0"),), "once": ()}
            if play(plan).violation:
                return
    pytest.fail(f"6 seeds did not find it: {what}")


WATCHED = {
    "memory that fills is told of when it is all but full": (
        "filling",
        "not 0 <= free[-1] < LOW * whole:",
        "not 0 <= free[-1] < LOW / 4 * whole:",
    ),
    "memory is said to last as long as it would if it fell half as fast": (
        "filling",
        "* (len(free) - third) * round_s",
        "* (len(free) - third) * 2 * round_s",
    ),
    "agents that speak late are heard of as if they did not": (
        "look",
        "one.gap_us = max(one.gap_us, at_us - one.heard_us)",
        "one.gap_us = 0",
    ),
    "of a machine that is late its neighbour is told": (
        "look",
        'found.append((name, "late", text, True))',
        'found.append((min(self._machines), "late", text, True))',
    ),
}


@pytest.mark.turns(4)
@pytest.mark.parametrize("what", WATCHED)
def test_what_heartbeats_tell_has_to_be_found(what: str) -> None:
    """In worlds of a quarter of an hour."""
    module, old, new = WATCHED[what]
    with planted(f"controller.policies.anomalies.{module}", old, new):
        for seed in range(4):
            faults = replace(only(["arrive"]), pause_us=600_000_000)
            plan = plan_of(seed, seconds=900, faults=faults)
            plan.world |= {"step_us": 10_000_000, "fills": ("m2",), "tardy": ("m3",)}
            plan.world["anomalies"] = "watch"
            if play(plan).violation:
                return
    pytest.fail(f"4 seeds did not find it: {what}")


def test_ways_that_are_called_slow_where_only_one_end_waits_are_found() -> None:
    """In worlds that last until it is known what is usual."""
    module = "controller.policies.stragglers.ways"
    old = """float(min(us, waits[other, one]))
        for (one, other), us in waits.items()
        if one < other and (other, one) in waits"""
    with planted(module, old, "float(us) for (one, other), us in waits.items() if one != other"):
        plans = (plan_of(seed, seconds=30, faults=only(["straggle"])) for seed in range(40))
        assert any(play(plan).violation for plan in plans)


def test_what_is_planted_is_taken_out_again() -> None:
    module, old, new, *_ = next(iter(BUGS.values()))
    with planted(module, old, new):
        assert any(violations())
    assert not any(itertools.islice(violations(), 10))


def test_a_bug_that_cannot_be_planted_is_told() -> None:
    nothing = planted("controller.change.verdict", "no such line", "")
    with pytest.raises(AssertionError, match="0 times"), nothing:
        pass
