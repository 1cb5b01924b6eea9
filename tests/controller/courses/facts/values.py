# SPDX-License-Identifier: Apache-2.0
"""What a job keeps of very many is what a dict and a set would be, and older values stay as they
were; and a machine that is lost again and again stays out for longer each time."""

import random
from collections import Counter
from collections.abc import Callable

from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.standby.flapping import losses_noted, quarantine_s, quarantined
from trainmover.controller.state import Job, Machine, Machines, MachineState
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Rank
from trainmover.protocol.messages import JobSpec
from trainmover.simulator.happenings import Violation

SECOND_US = 1_000_000
HOUR_S, FIRST_S = 3600, 30


def _facts(chance: random.Random) -> None:
    """Several hundred come, in any order, some again; now and then some are taken out."""
    known: dict[int, int] = {}
    facts: Facts[int, int] = Facts(known)
    older: list[tuple[Facts[int, int], dict[int, int]]] = []
    most = chance.choice((10, 100, 400))
    for turn in range(most * 2):
        key = chance.randrange(most)
        facts, known = facts.having(key, turn), {**known, key: turn}
        if len(facts) != len(known) or facts.get(key) != turn or key not in facts:
            raise Violation(f"{key} was said, and {len(facts)} of {len(known)} are known")
        if chance.random() < 0.02:
            gone = {chance.randrange(most) for _ in range(3)}
            facts = facts.without(gone)
            known = {one: its for one, its in known.items() if one not in gone}
        if chance.random() < 0.05:
            older.append((facts, known))
            _are_same(facts, known)
    for then, its in [*older, (facts, known)]:
        _are_same(then, its)
    if older and (facts == older[0][0]) is not (known == older[0][1]):
        raise Violation("two are equal that are not, or the other way round")


def _are_same(facts: Facts[int, int], known: dict[int, int]) -> None:
    if [*facts] != [*known] or [*facts.items()] != [*known.items()] or facts != known:
        raise Violation(f"{facts} is to be {known}")
    if [*facts.keys()] != [*known] or [*facts.values()] != [*known.values()]:
        raise Violation(f"{facts} is to be {known}")
    if any(facts[key] != its for key, its in known.items()) or -1 in facts:
        raise Violation(f"{facts} is to be {known}")


def _ranks(chance: random.Random) -> None:
    most = chance.choice((5, 70, 700))
    known = {chance.randrange(most) for _ in range(chance.randrange(most))}
    ranks = Ranks(known)
    for _ in range(30):
        one, others = chance.randrange(most), {chance.randrange(most) for _ in range(9)}
        before, was = ranks, {*known}
        match chance.randrange(4):
            case 0:
                ranks, known = ranks.having(one), known | {one}
            case 1:
                ranks, known = ranks.union(others), known | others
            case 2:
                ranks, known = ranks.union(Ranks(others)), known | others
            case 3:
                ranks, known = ranks.without(others), known - others
        same = [*ranks] == sorted(known) and len(ranks) == len(known) and ranks == known
        if not same or [*before] != sorted(was) or -1 in ranks or (one in ranks) != (one in known):
            raise Violation(f"{ranks} is to be {known}")
        if (ranks == Ranks(was)) is not (known == was) or ranks != Ranks(known):
            raise Violation(f"{ranks} and {was} are equal, or are not: {known}")
        if hash(ranks) != hash(frozenset(Rank(rank) for rank in known)):
            raise Violation(f"{ranks} is as a key another than {known}")


def _machines(chance: random.Random) -> None:
    """How many are in each state is counted, not looked for."""
    machines = Machines()
    for _ in range(chance.choice((20, 200))):
        name = MachineId(f"m{chance.randrange(30)}")
        state = chance.choice([*MachineState])
        machines = machines.having(name, Machine(name, True, "v", "h", state=state))
        if chance.random() < 0.05:
            machines = machines.without({name})
        known = Counter(one.state for one in machines.values())
        if wrong := [state for state in MachineState if machines.count(state) != known[state]]:
            raise Violation(f"of {wrong} there are {known}, counted otherwise")
    for text, place in (("m2", 2), ("m10", 10), ("a7b", 0), ("host-3", 3)):
        if Machine(MachineId(text), True, "v", "h").place[1] != place:
            raise Violation(f"{text} is not the {place}th")


def _losses(chance: random.Random) -> None:
    """From the second loss within an hour on: half a minute, a whole one, two."""
    name, now_s, losses = MachineId("m1"), 10_000, [0]
    losses.clear()
    job = Job(spec=JobSpec(run_id="losses", argv=[], machines=1))
    other = Machine(MachineId("m2"), False, "v", "h2")
    job = losses_noted(job, [other], now_s * SECOND_US)
    for _ in range(chance.choice((3, 12))):
        now_s += chance.choice((1, 40, 700, HOUR_S, HOUR_S + 50))
        for host in ("h1", "elsewhere"):
            lately = [at for at in losses if now_s - at < HOUR_S] if host == "h1" else []
            wait_s = min(FIRST_S * 2 ** (len(lately) - 2), HOUR_S) if len(lately) > 1 else 0
            left_s = max(0, lately[-1] + wait_s - now_s) if lately else 0
            if quarantine_s(job, name, host, now_s * SECOND_US) != left_s:
                raise Violation(f"{name} was lost at {lately}, it is {now_s}: {left_s} s are left")
            if host != "h1":
                continue
            kept_out = {name: left_s} if left_s else {}
            if quarantined(job, now_s * SECOND_US) != kept_out:
                raise Violation(f"{name} was lost at {lately}, it is {now_s}: {kept_out}")
            back = replace(job, machines=Machines({name: Machine(name, True, "v", "h1")}))
            if quarantined(back, now_s * SECOND_US):
                raise Violation(f"{name} is here, and is kept out")
        lost = Machine(name, False, "v", "h1")
        job = losses_noted(job, [lost], now_s * SECOND_US)
        losses.append(now_s)
    if job.losses[other.id, "h2"] != (10_000 * SECOND_US,):
        raise Violation(f"{other.id} was lost once: {job.losses}")


def play(chance: random.Random) -> None:
    """One of them."""
    ways: tuple[Callable[[random.Random], None], ...] = (_facts, _ranks, _machines, _losses)
    chance.choice(ways)(chance)
