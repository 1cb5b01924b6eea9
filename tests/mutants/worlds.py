"""Worlds that a change has to pass, in which it may be found: many, short, of every kind.

They come in turns, so that what is found is found soon. All is made of the seed."""

import random
from dataclasses import replace

from trainmover.simulator.faults import EVERYTHING, Faults, only
from trainmover.simulator.story import Plan, plan_of, play

ALL = Faults(EVERYTHING.weights | {"cordon": 3, "torn": 1}, pause_us=400_000)
FOCUSED = (
    "move,death,crash",
    "death,crash,move,controller",
    "flip,move,death",
    "cordon,move,death",
    "stuck,stop,spins,freeze",
    "cut,partition,reset,freeze",
    "store,move,crash",
    "torn,move",
    "vault,unprepared,death,between,garbage",
    "rack,death,arrive",
)


def wrong_in(seed: int) -> str:
    """What is wrong in that world; "" if all is well."""
    return play(_plan(seed)).violation


def _plan(seed: int) -> Plan:
    """Of five: two with everything, two with few things that meet, one of another size."""
    chance = random.Random(f"worlds {seed}")
    turn = seed % 5
    if turn == 4:
        machines, standbys = chance.choice(((1, 1), (1, 2), (2, 1), (3, 0), (3, 1), (8, 4)))
        return plan_of(seed, machines=machines, standbys=standbys, seconds=4, faults=ALL)
    if turn in (1, 3):
        names = FOCUSED[seed // 2 % len(FOCUSED)].split(",")
        plan = plan_of(seed, seconds=4, faults=replace(only(names), pause_us=400_000))
    else:
        plan = plan_of(seed, seconds=5, faults=ALL)
    often = {"snapshots": 3, "checkpoints": 5, "rounds": 3}
    if turn in (2, 3):
        plan.world.update({name: every for name, every in often.items() if plan.world[name]})
    return plan
