"""Who is suspected: never one that waits or moves, always the one that the others wait for."""

import random

from trainmover.controller.standstill.suspects import nobody_is_missing, suspects
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Stands


def stands(rank: int, where: str = "call", **counts: int) -> Stands:
    return Stands(
        rank=Rank(rank), epoch=Epoch(1), step=Step(8), where=where, counts=counts,
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
