"""Worlds that a change has to pass, in which it may be found: many, short, of every kind.

They come in turns, so that what is found is found soon. All is made of the seed."""

import random
from dataclasses import replace

from trainmover.simulator.faults import EVERYTHING, Faults, only
from trainmover.simulator.story import Plan, plan_of, play

ALL = Faults(EVERYTHING.weights | {"cordon": 3, "torn": 1}, pause_us=400_000)
PEOPLE = dict.fromkeys(("roll", "place", "drain", "notice", "sign", "examine"), 3)
MORE = Faults(ALL.weights | PEOPLE, pause_us=400_000)
SLOW = {"straggle", "narrow"}
"""What is slow is known only after many steps."""
SELDOM_US = 6_000_000
"""It is asked for only where nobody was slow before."""
LONG: dict[str, object] = {
    "step_us": 10_000_000,
    "fills": ("m2",),
    "tardy": ("m3",),
    "anomalies": "watch",
}
ALONE: dict[str, object] = {"alone": True, "unfit": ()}
FOCUSED: tuple[tuple[str, dict[str, object]], ...] = (
    ("move,death,crash", {}),
    ("death,crash,move", ALONE | {"snapshots": 3}),
    ("stuck,stop,spins,freeze", {}),
    ("flip,move,death", {"rounds": 3, "on_divergence": "replace"}),
    ("death,power,crash", ALONE | {"snapshots": 0, "checkpoints": 5}),
    ("cordon,move,death", {}),
    (
        "death,drill,move",
        {"no_standby": "checkpoint", "wait_s": 0, "checkpoints": 5, "snapshots": 3},
    ),
    ("cut,partition,reset,freeze", {}),
    ("store,move,crash", {}),
    ("rack,death,power", ALONE | {"racks": 3, "copies": 2, "snapshots": 3}),
    ("vault,unprepared,death,between,garbage", {}),
    ("torn,move", {}),
    ("move,controller,death", {"once": ("m1", "m2", "m3", "m4", "m5", "m6")}),
    ("stuck,stop,death", {"snapshots": 3, "checkpoints": 3}),
    ("roll,place,death,controller", {}),
    ("roll,place,cordon,drain,move,crash", {}),
    ("examine,death,reset,arrive", {"health": "act", "sick": ("m6",)}),
    ("sign,arrive,controller,notice", {"anomalies": "act"}),
    ("drain,notice,death,cordon", {}),
    ("straggle,heavy,arrive", {"stragglers": "act"}),
    ("examine,arrive,controller,cordon", {"health": "act"}),
    ("narrow,arrive,death", {"stragglers": "act"}),
    ("cut,partition,stop", {}),
    ("sign,roll,death", {"anomalies": "act"}),
    ("straggle", {"stragglers": "act", "stages": 1, "alone": False, "once": ()}),
    ("death,crash,power,store", {"snapshots": 3, "checkpoints": 3, "copies": 2}),
    ("death,power,crash", {"late": True}),
    ("death,crash,move", {"readiness": "idle"}),
    ("death,crash,move", {"readiness": "warm", "once": ("m5",)}),
    ("death,power,arrive", {"others": ("m5",), "early": True}),
    ("crash,arrive", LONG | {"unfit": (("m5", "p0"),), "once": ("m6",)}),
)
"""Few things that go wrong, and where that is most telling."""


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
        return _focused(seed, *FOCUSED[(seed // 5 * 2 + turn // 2) % len(FOCUSED)])
    plan = plan_of(seed, seconds=5, faults=ALL if turn else MORE)
    often = {"snapshots": 3, "checkpoints": 5, "rounds": 3}
    if turn == 2:
        plan.world.update({name: every for name, every in often.items() if plan.world[name]})
    return plan


def _focused(seed: int, names: str, where: dict[str, object]) -> Plan:
    few = names.split(",")
    seconds = 20 if SLOW & {*few} else 4
    pause_us = SELDOM_US if few == ["straggle"] else 400_000
    if "step_us" in where:  # Hardly anything happens, for a quarter of an hour.
        seconds, pause_us = 900, 300_000_000
    plan = plan_of(seed, seconds=seconds, faults=replace(only(few), pause_us=pause_us))
    plan.early, plan.late = bool(where.get("early")), bool(where.get("late"))
    plan.world |= {name: its for name, its in where.items() if name not in ("early", "late")}
    plan.standbys = 0 if plan.world["wait_s"] == 0 else plan.standbys
    return plan
