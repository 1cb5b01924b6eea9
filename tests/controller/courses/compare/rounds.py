# SPDX-License-Identifier: Apache-2.0
"""Rounds of ranks of which is known who holds what, and whose bits have flipped: what they come to.

Who is taken over goes on with another's state; all may go back to before one was wrong, or while it
was; and those whom the script trains apart may average.
"""

import random

from courses.compare.replicas import MOVING, STILL, Family, Rounds
from trainmover.controller.facts import Facts
from trainmover.controller.state import Job, Phase
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages import JobSpec, Recorded


def _begun(chance: random.Random) -> Rounds:
    sizes = [chance.choice((1, 2, 3, 4, 5)) for _ in range(chance.choice((1, 1, 2, 3)))]
    ranks = [Rank(rank) for rank in range(sum(sizes))]
    order = chance.sample(ranks, len(ranks))
    families = []
    for name, size in enumerate(sizes):
        families.append(Family(name, sorted(order[:size])))
        del order[:size]
    digest = {rank: f"d{one.name}" for one in families for rank in one.together}
    recorded = {
        rank: Recorded(rank=rank, step=Step(3), trace="p", digest=digest[rank], bytes=1)
        for rank in ranks
    }
    job = Job(
        spec=JobSpec(run_id="rounds", argv=[], machines=len(ranks)),
        phase=Phase.RUNNING,
        seats=tuple(MachineId(f"m{rank}") for rank in ranks),
        epoch=Epoch(3),
        recorded=Facts(recorded),
    )
    return Rounds(chance, job, families)


def play(chance: random.Random) -> None:
    """Some rounds in which all is well, then some in which a rank is not."""
    rounds = _begun(chance)
    rounds.is_known()
    for _ in range(chance.randint(2, 4)):
        rounds.round()
    for _ in range(chance.randint(1, 4)):
        right = [r for one in rounds.families for r in one.together if not one.over]
        if not right or rounds.diverged:
            break
        _happens(rounds, chance.choice(right))
    rounds.round()
    if rounds.flaws and chance.random() < 0.5:
        rounds.average()
    if chance.random() < 0.5 and not rounds.diverged and not rounds.flaws:
        for rank in chance.sample(rounds.ranks, min(2, len(rounds.ranks))):
            rounds.differs(rank)


def _happens(rounds: Rounds, rank: Rank) -> None:
    chance = rounds.chance
    many = chance.choice((1, 1, 2, 3, 4))
    tensors = tuple(chance.sample(MOVING, many))
    match chance.randrange(7):
        case 0 | 1:
            tensors += ("count",) if chance.random() < 0.3 else ()
        case 2:
            tensors = (STILL,)
        case 3:
            tensors = (chance.choice(("mean", "table", "count")),)
        case 4:
            tensors = (STILL, MOVING[0])
        case 5:
            rounds.takes_over(rank, rank)
            holders = rounds.family(rank).together
            if (other := chance.choice(rounds.ranks)) not in holders or len(holders) > 2:
                rounds.takes_over(other, other)
            rounds.flips(rank, tensors, joined=True)
            return
        case 6:
            rounds.takes_over(rank, rank)
            rounds.round()
    rounds.flips(rank, tensors)
    if rank not in rounds.diverged:
        return
    others = [r for r in rounds.family(rank).together if r not in rounds.diverged]
    rounds.round()
    if chance.random() < 0.3:
        rounds.all_go_back(chance.choice((rounds.since[rank], rounds.since[rank] + 1, rounds.step)))
        rounds.round()
        if rank not in rounds.diverged:
            return
    rounds.takes_over(rank, chance.choice(others))
    rounds.round()
    if chance.random() < 0.5:
        at = chance.choice((rounds.since[rank], rounds.mended[rank], rounds.step))
        rounds.all_go_back(at)
        if rank in rounds.diverged:
            rounds.round()
            rounds.takes_over(rank, chance.choice(others))
            rounds.round()
