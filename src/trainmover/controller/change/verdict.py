# SPDX-License-Identifier: Apache-2.0
"""Commit forward or abort: one authority decides, from where the survivors stood. Pure.

The gate of step k is an all-reduce: who has passed it knows that every rank had entered it with
its gradients whole and its record safe. So the survivors can only be in these mixes:

    some past gate k, the rest in it      commit k: those in it hold the update and apply it
    all in gate k, nobody past it         commit k as well: the sums of step k are whole everywhere;
                                          but only if the lost ranks' records after k are safe,
                                          else nobody could take their place at k + 1
    anybody still computing k             abort: all run step k again

Whatever is decided, the lost ranks are taken up at step `committed + 1`, so their records for that
step must be held by a machine that lives.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Position


@dataclass(frozen=True)
class Impossible:
    """Error: no verdict lets the job go on with the right bits. `why` is for the user."""

    why: str


def judge(
    positions: Mapping[Rank, Position],
    lost: Iterable[Rank],
    held: Mapping[Rank, set[Step]],
    floor: Step,
) -> Step | Impossible:
    """Return the last committed step, from the survivors' positions.

    held   lost rank -> steps for which a living machine holds its record
    floor  an earlier verdict or boundary: never undone
    """
    lost = list(lost)
    past = Step(max([floor, *(position.committed for position in positions.values())]))
    in_gate = [position for position in positions.values() if position.gate == past + 1]
    everybody_in = len(in_gate) == len(positions) > 0
    if everybody_in and _all_held(lost, held, Step(past + 2)):
        return Step(past + 1)
    behind = [
        rank
        for rank, position in positions.items()
        if position.committed != past and position.gate != past
    ]
    if behind:
        return Impossible(f"rank {behind[0]} is not at step {past} like the others")
    for rank in lost:
        if past + 1 not in held.get(rank, set()):
            return Impossible(
                f"the record of rank {rank} for step {past + 1} is on no machine that lives"
            )
    return past


def _all_held(lost: Iterable[Rank], held: Mapping[Rank, set[Step]], step: Step) -> bool:
    return all(step in held.get(rank, set()) for rank in lost)
