"""Bugs of one line, planted in what decides, in servers and in agents: the simulation finds each.

They are planted as `tests/planting.py` has it. The last word, if there is one more, says what goes
wrong in the worlds that find it.
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
    "a successor forgets which facts it has: agents say them twice":
        ("server.machines.accounts", "_said", "max(self.facts, number)", "0",
         "controller,crash,death"),
    "after a takeover each machine lacks one order":
        ("server.machines.accounts", "_beyond", "len(pending) - missing",
         "len(pending) - missing + 1"),
    "an agent throws away one fact too many: the controller's successor never hears it":
        ("agent.outbox", "drop", "boundary", 0),
    "what a joiner prints is never shown":
        ("agent.decide", "place_after", "Place(slot=slot, bound=True)", "Place(slot=slot)"),
    "an incident never ends, and no move is taken on any more":
        ("controller.change.incidents", "count_rank", "boundary", 1, "move"),
    "a successor keeps no orders for the machines that come back":
        ("server.history.past", "take", "number", 0),
    "a done move is never answered: who has asked waits for ever":
        ("controller.change.move", "answer_done_moves", "forget", 0),
    "a verdict to commit is taken for one to run the step again":
        ("rank.standing", "judged", "boundary", 0, "death,crash"),
    "rows that were told to an agent that dies with them are lost":
        ("rank.told", "in_doubt", "forget", 0, "controller,death,power"),
    "steps that waited for those of another worker are left out":
        ("agent.together", "take", "same.append(fact)", "same.__setitem__(slice(None), [fact])"),
    "a process drops the snapshot that all could go back to":
        ("rank.cuts", "completed", "boundary", 0),
    "a machine that has joined while the job waits is not taken":
        ("controller.change.recovery", "_take_whom_there_is", "plain", 0),
    "standbys are never held at a first step: a loss costs what it would cost without":
        ("controller.standby.warming", "_hold", "negate", 0),
    "that a machine is not cordoned any more is answered as if it had failed":
        ("controller.standby.cordon", "uncordon", "number", 1, "cordon"),
    "a verdict does not wait for vaults: records that are there count as lost":
        ("controller.change.recovery", "_give_verdict", "operand", 1),
    "a move that is cancelled is never answered":
        ("controller.change.move", "cancel_move", "drop", 5, "move,death"),
    "a rank that has more to do is moved":
        ("controller.policies.stragglers.answer", "_why_not", "operand", 0, "heavy"),
    "a roll has more machines away at once than it may":
        ("controller.policies.plans.roll", "_next", "max(roll.at_once - len(roll.away), 0)",
         "roll.at_once", "roll"),
    "what an examination has found is never judged":
        ("controller.policies.health.examine", "judge_examined", "plain", 0, "examine"),
    "who asks for the health of a machine that is lost then is never told":
        ("controller.policies.health.examine", "forget_lost", "forget", 5, "examine,death"),
    "a machine that will be taken away keeps its ranks until it is":
        ("controller.policies.maintenance.leaving", "_with_ranks", "operand", 2, "notice"),
    "a machine that is about to fail keeps its ranks until it does":
        ("controller.policies.maintenance.leaving", "_with_ranks", "operand", 3, "sign"),
    "a step is committed though the records of the next are nowhere":
        ("controller.change.verdict", "judge", "operand", 1, "death,crash,arrive"),
    "vaults that speak of another epoch count":
        ("controller.change.reports", "vault_held", "operand", 1, "death,crash,move"),
    "a joiner that is beyond the cut is not unwound":
        ("controller.change.going_back", "_unwind", "operand", 5, "death,power,crash"),
    "who has given up its ranks is not told to leave":
        ("controller.change.switching", "go_when_switched", "drop", 2, "move,death"),
    "a grave line is not taken for a finding":
        ("controller.policies.anomalies.told", "sign_told", "plain", 0, "sign"),
    "a roll is refused, and begins":
        ("controller.policies.plans.steering", "begin_plan", "number", 3, "roll"),
    "a machine is said to have been told to die, and was not":
        ("controller.machines", "kill", "forget", 1, "drill"),
    "of the runs of a machine's processes the shortest counts as what it takes":
        ("controller.standby.attest", "attest_warm", "end", 0),
    "a drill is heard of when its machine was lost, and not when it was told to die":
        ("controller.machines", "machines_lost", "min(killed or [one.heard_us for one in lost])",
         "min(one.heard_us for one in lost)", "drill"),
    "a stop waits for a checkpoint that nobody can write":
        ("controller.keep.stopping", "_can_save", "operand", 7),
    "what a loss would cost leaves out the memory that has to travel":
        ("controller.standby.attest", "predicted_ms", "forget", 2),
    "examinations that are under way are counted twice":
        ("controller.policies.health.examine", "_begun", "number", 3, "examine"),
    "standbys warm up before there is anything to run":
        ("controller.standby.warming", "tend_standbys", "operand", 0),
}  # fmt: skip


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
    module, function, change, instead, *faults = BUGS[what]
    with planted(module, function, change, instead):
        assert any(violations(*faults)), f"{SEEDS} seeds did not find it: {what}"


@pytest.mark.parametrize("what", BUGS)
def test_every_bug_can_still_be_planted(what: str) -> None:
    with planted(*BUGS[what][:4]):
        pass


SLOWNESS = {
    "a machine that is slow is never said to be":
        ("excess", "is_slow", "usual_us * SLOW", "usual_us * 9"),
    "one that is slow is seen, and not told of":
        ("pace", "_slow", "return [self._found(job, rank, step, steps, at_us)] if steps else []",
         "return []"),
    "nobody measures what a move has come to":
        ("pace", "_helped", "self._measured = move.incident", "return []"),
    "a machine is moved on mere suspicion":
        ("answer", "slow_suspected", "hold_for(job, slot, since_us)",
         'begin_move(job, event.machine, Cause(Trigger.MOVE, ""), request="", at_us=event.at_us)'),
    "a finding is made of the steps before those that it names":
        ("pace", "_finding", "medians(seen.last(steps))", "medians([*seen.samples][:-steps])"),
    "a finding shows steps as if it had seen more of them":
        ("pace", "_finding", "min(steps, SHOWN)", "SHOWN"),
    "what was measured is not kept": ("answer", "slow_measured", "forget", 4),
}  # fmt: skip


@pytest.mark.turns(4)
@pytest.mark.parametrize("what", SLOWNESS)
def test_slow_machines_have_to_be_found(what: str) -> None:
    """In worlds that are long quick before one machine is slow."""
    module, *bug = SLOWNESS[what]
    seldom = replace(only(["straggle"]), pause_us=6_000_000)
    with planted(f"controller.policies.stragglers.{module}", *bug):
        for seed in range(20):
            plan = plan_of(seed, seconds=30, faults=seldom)
            plan.world |= {"stragglers": "act", "stages": 1, "alone": False, "once": ()}
            if play(plan).violation:
                return
    pytest.fail(f"20 seeds did not find it: {what}")


COLD = {
    "a cold machine is tried again at once":
        ("try_cold_again", "min(TRY_AGAIN_US << machine.tries, TRY_AGAIN_US_MAX)", "0"),
    "a cold machine is tried again no sooner for being there":
        ("try_cold_again", "min(TRY_AGAIN_US << machine.tries, TRY_AGAIN_US_MAX)",
         "TRY_AGAIN_US_MAX"),
    "standbys never prove again what they can":
        ("attest_again", "at_us - ages[oldest] < ATTEST_AGAIN_US", "at_us >= ages[oldest]"),
    "standbys prove what they can at every minute": ("attest_again", "operand", 5),
}  # fmt: skip


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
    "memory that fills is told of when it is all but full":
        ("filling", "full_in_s", "LOW * whole", "LOW / 4 * whole"),
    "memory is said to last as long as it would if it fell half as fast":
        ("filling", "full_in_s", "len(free) - third", "2 * (len(free) - third)"),
    "agents that speak late are heard of as if they did not":
        ("look", "alive", "max(one.gap_us, at_us - one.heard_us)", "0"),
    "of a machine that is late its neighbour is told":
        ("look", "_late", '(name, "late", text, True)',
         '(min(self._machines), "late", text, True)'),
}  # fmt: skip


@pytest.mark.turns(4)
@pytest.mark.parametrize("what", WATCHED)
def test_what_heartbeats_tell_has_to_be_found(what: str) -> None:
    """In worlds of a quarter of an hour."""
    module, *bug = WATCHED[what]
    with planted(f"controller.policies.anomalies.{module}", *bug):
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
    old = "float(min(us, waits[other, one])) for (one, other), us in waits.items() "
    old = f"{{(one, other): {old} if one < other and (other, one) in waits}}"
    new = "{(one, other): float(us) for (one, other), us in waits.items() if one != other}"
    with planted("controller.policies.stragglers.ways", "_mutual", old, new):
        plans = (plan_of(seed, seconds=30, faults=only(["straggle"])) for seed in range(40))
        assert any(play(plan).violation for plan in plans)


def test_what_is_planted_is_taken_out_again() -> None:
    bug = next(iter(BUGS.values()))[:4]
    with planted(*bug):
        assert any(violations())
    assert not any(itertools.islice(violations(), 10))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("judge", "no_such_name", ""), "'no_such_name' is 0 times"),
        (("judge", "drop", 99), "changes of the kind 'drop'"),
        (("no_such", "drop", 0), "0 functions are called no_such"),
    ],
)
def test_a_bug_that_cannot_be_planted_is_told(change: tuple[str, str, int], words: str) -> None:
    nothing = planted("controller.change.verdict", *change)
    with pytest.raises(AssertionError, match=words), nothing:
        pass
