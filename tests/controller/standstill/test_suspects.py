"""Who is suspected: never one that waits or moves, always the one that the others wait for."""

import random

from trainmover.controller.standstill.suspects import circle, nobody_is_missing, suspects
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Stands


def stands(rank: int, where: str = "call", *, waits_in: str = "", **counts: int) -> Stands:
    return Stands(
        rank=Rank(rank), epoch=Epoch(1), step=Step(8), where=where, counts=counts, group=waits_in,
        still_ms=700, deadline_ms=600,
    )  # fmt: skip


def said(*facts: Stands) -> dict[Rank, Stands]:
    return {fact.rank: fact for fact in facts}


def test_the_rank_that_has_not_begun_the_call_its_peers_wait_in_is_suspected() -> None:
    everybody = said(stands(0, world=5), stands(1, "script", world=4), stands(2, world=5))
    assert suspects(everybody, [], ranks=3) == [1]


def test_a_rank_that_waits_itself_is_not_to_blame() -> None:
    """0 waits for 1, which waits for 2 in another group."""
    chain = said(stands(0, left=3), stands(1, left=2, right=7), stands(2, "fetch", right=6))
    assert suspects(chain, [], ranks=3) == [2]


def test_who_has_not_said_that_it_stands_still_moves() -> None:
    slow = said(stands(0, world=5), stands(2, world=5))
    assert suspects(slow, [], ranks=3) == []


def test_who_executes_nothing_is_suspected_once_another_waits() -> None:
    assert suspects(said(stands(0, world=5)), [Rank(1)], ranks=3) == [1]
    assert suspects({}, [Rank(1)], ranks=3) == []
    assert suspects(said(stands(0, "script", world=5)), [Rank(1)], ranks=3) == []


def test_where_most_are_busy_the_few_others_are_only_early() -> None:
    busy = [stands(rank, "script", world=4) for rank in (1, 2, 3)]
    assert suspects(said(stands(0, world=5), *busy), [], ranks=4) == []
    assert suspects(said(*busy), [], ranks=4) == []


def test_where_messages_are_awaited_all_but_the_suspect_must_wait() -> None:
    pipeline = said(stands(0, world=4), stands(1, "script", world=4), stands(2, world=4))
    assert suspects(pipeline, [], ranks=3) == [1]
    assert suspects(pipeline, [], ranks=4) == []


def test_a_change_that_waits_for_all_blames_whom_it_waits_for() -> None:
    late = said(stands(1, "script", world=4))
    assert suspects(late, [], ranks=3, waiting=[Rank(0), Rank(2)]) == [1]


def test_nobody_is_missing_where_all_wait() -> None:
    assert nobody_is_missing(said(stands(0, world=5), stands(1, "runtime", world=5)), 2)
    assert not nobody_is_missing(said(stands(0, world=5)), 2)
    assert not nobody_is_missing(said(stands(0, world=5), stands(1, "script", world=5)), 2)


def test_in_any_job_that_a_few_ranks_hold_up_exactly_those_are_found() -> None:
    for seed in range(1000):
        in_a_job_that_a_few_ranks_hold_up_exactly_those_are_found(seed)


def in_a_job_that_a_few_ranks_hold_up_exactly_those_are_found(seed: int) -> None:
    """Ranks make the same calls in random overlapping groups, in one order, until some stop."""
    chance = random.Random(seed)
    ranks = chance.randrange(3, 12)
    groups = {
        f"g{number}": chance.sample(range(ranks), chance.randrange(2, ranks + 1))
        for number in range(chance.randrange(1, 5))
    } | {"all": list(range(ranks))}
    program = [chance.choice(list(groups)) for _ in range(chance.randrange(1, 30))] + ["all"]
    stuck = set(chance.sample(range(ranks), chance.randrange(1, ranks // 2 + 1)))
    stops = {rank: chance.randrange(len(program)) for rank in stuck}
    counts = {rank: {g: 0 for g in groups if rank in groups[g]} for rank in range(ranks)}
    waits: dict[int, str] = {}
    for at, group in enumerate(program):
        here = [rank for rank in groups[group] if rank not in waits]
        gone = {rank for rank in stuck if stops[rank] <= at}
        comers = [rank for rank in here if rank not in gone]
        for rank in comers:
            counts[rank][group] += 1
        if len(comers) < len(groups[group]):
            waits |= dict.fromkeys(comers, "call")
    facts = [
        stands(rank, "call" if rank in waits else "script", **counts[rank])
        for rank in range(ranks)
        if rank in waits or rank in stuck
    ]
    found = suspects(said(*facts), [], ranks=ranks)
    busy = {rank for rank in stuck if rank not in waits}
    assert set(found) <= busy
    assert found or not busy


def test_two_that_each_wait_in_what_the_other_has_not_begun_are_a_circle() -> None:
    gate = stands(0, waits_in="gate", gate=3, world=4)
    assert circle(said(gate, stands(1, waits_in="world", gate=2, world=5))) == [0, 1]
    assert circle(said(gate, stands(1, waits_in="world", gate=3, world=5))) == []
    assert circle(said(gate, stands(1, "script", gate=2, world=5))) == []
    assert circle(said(gate)) == []


def test_a_message_is_no_collective_that_others_are_behind_in() -> None:
    """0 has begun more than 1 there, in the background; what it waits for now is a message."""
    waits = stands(0, gate=2, world=5)
    assert circle(said(waits, stands(1, waits_in="gate", gate=3, world=4))) == []


def test_ranks_that_stand_for_good_are_in_a_circle_and_no_others() -> None:
    found = [ranks_that_stand_for_good_are_in_a_circle(seed) for seed in range(2000)]
    assert 200 < sum(found) < 1800


def ranks_that_stand_for_good_are_in_a_circle(seed: int) -> bool:
    """Each makes calls in random groups, most in one order: is found as soon as all wait. What a
    rank says it has said when it began to wait, and others have gone on since."""
    chance = random.Random(seed)
    ranks = range(chance.randrange(2, 7))
    groups = {"all": [*ranks]} | {
        f"g{number}": chance.sample(ranks, chance.randrange(2, len(ranks) + 1))
        for number in range(3)
    }
    order = [chance.choice([*groups]) for _ in range(12)]
    programs = {rank: [g for g in order if rank in groups[g]] for rank in ranks}
    if chance.random() < 0.7:
        chance.shuffle(programs[chance.choice(ranks)])
    counts = {rank: {g: 0 for g in groups if rank in groups[g]} for rank in ranks}
    begun = dict.fromkeys(ranks, 0)
    waits: dict[Rank, Stands] = {}
    found: list[Rank] = []
    while True:
        ready = [r for r in ranks if r not in waits and begun[r] < len(programs[r])]
        ended = [r for r in waits if all(
            counts[other][waits[r].group] >= counts[r][waits[r].group]
            for other in groups[waits[r].group]
        )]  # fmt: skip
        if not ready and not ended:
            break
        found = found or circle(waits)
        assert not {*found} & {*ended}
        if ready and (not ended or chance.random() < 0.5):
            rank = chance.choice(ready)
            group = programs[rank][begun[rank]]
            begun[rank] += 1
            counts[rank][group] += 1
            waits[Rank(rank)] = stands(rank, waits_in=group, **counts[rank])
        else:
            del waits[chance.choice(ended)]
    found = found or circle(waits)
    assert found or len(waits) < len(ranks), "all wait, and each for one that is behind"
    for rank, other in zip(found, [*found[1:], *found[:1]], strict=True):
        assert counts[other][waits[rank].group] < counts[rank][waits[rank].group]
    return bool(found)
