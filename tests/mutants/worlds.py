"""Worlds that a change has to pass, in which it may be found: many, short, of every kind.

They come in turns, so that what is found is found soon. All is made of the seed."""

import random
from dataclasses import fields, replace
from typing import Any

from trainmover.simulator.faults import EVERYTHING, Faults, only
from trainmover.simulator.story import Plan, plan_of, play

ALL = Faults(EVERYTHING.weights | {"cordon": 3, "torn": 1}, pause_us=400_000)
PEOPLE = dict.fromkeys(("roll", "place", "drain", "notice", "sign", "examine"), 3)
MORE = Faults(ALL.weights | PEOPLE, pause_us=400_000)
SLOW = {"straggle", "narrow"}
"""What is slow is known only after many steps."""
TURNS = (1, 2, 3, 5, 6, 8, 9)
"""Of ten worlds, those with few things that go wrong."""
SELDOM_US = 6_000_000
"""It is asked for only where nobody was slow before."""
ALONE: dict[str, object] = {"alone": True, "unfit": ()}
KEPT: dict[str, object] = ALONE | {"snapshots": 3, "checkpoints": 3}
ONCE = tuple(f"m{number}" for number in range(1, 30))
UNFIT: dict[str, object] = {"once": (), "unfit": tuple(("m5", f"p{n}") for n in range(3))}
ASKS: dict[str, object] = {"pause_us": 150_000}
ERRS: dict[str, object] = {"stragglers": "act", "anomalies": "act", "pause_us": 120_000}
SAVES: dict[str, object] = KEPT | {"no_standby": "checkpoint", "wait_s": 0, "standbys": 0}
FOCUSED: tuple[tuple[str, dict[str, object]], ...] = (
    ("move,death,crash", {}),
    ("ask,move,death", ASKS),
    ("death,crash,move", ALONE | {"snapshots": 3}),
    ("recompile,move,death,crash", {"rounds": 3}),
    ("stuck,stop,spins,freeze", {}),
    ("ask,roll,place,drain", ASKS),
    ("imagine,move,arrive", ERRS),
    ("flip,move,death", {"rounds": 3, "on_divergence": "replace"}),
    ("unfit,death,move", {"once": ()}),
    ("death,power,crash", ALONE | {"snapshots": 0, "checkpoints": 5}),
    ("rot,death,power,between", KEPT),
    ("cordon,move,death", {}),
    ("sign,death,power", {"anomalies": "act", "standbys": 1}),
    ("death,drill,move", SAVES),
    ("crash", {"machines": 1, "standbys": 2, "pause_us": 150_000, "seconds": 7}),
    ("cut,partition,reset,freeze", {}),
    ("death,power,full", KEPT | {"stops_early": True}),
    ("store,move,crash", {}),
    ("ask,examine,cordon", ASKS | {"health": "act", "sick": ("m6",)}),
    ("rack,death,power", ALONE | {"racks": 3, "copies": 2, "snapshots": 3}),
    ("store,unfit,arrive", {"nproc": 2, "once": ()}),
    ("vault,unprepared,death,between,garbage", {}),
    ("flip,death,move", {"rounds": 3, "machines": 5, "on_divergence": "replace", "alone": False}),
    ("torn,move", {}),
    ("death,crash", {"resumes": 4, "checkpoints": 5, "snapshots": 3}),
    ("move,controller,death", {"once": ("m1", "m2", "m3", "m4", "m5", "m6")}),
    ("recompile,crash,move", {"rounds": 3, "once": ONCE}),
    ("stuck,stop,death", {"snapshots": 3, "checkpoints": 3}),
    ("stop,stuck", {"early": True, "seconds": 14, "pause_us": 2_000_000}),
    ("roll,place,death,controller", {}),
    ("ask,notice,drain", ASKS),
    ("imagine", ERRS | {"length": 60, "standbys": 3}),
    ("roll,place,cordon,drain,move,crash", {}),
    ("full,death,drill", SAVES),
    ("examine,death,reset,arrive", {"health": "act", "sick": ("m6",)}),
    ("death,crash,move", {"restarts_max": 1, "early": True, "pause_us": 150_000}),
    ("death,power,crash", KEPT | {"snapshots": 0, "restarts_max": 1}),
    ("between,death,crash", {"snapshots": 0, "checkpoints": 0}),
    ("sign,arrive,controller,notice", {"anomalies": "act"}),
    ("rack", {"machines": 8, "standbys": 6, "racks": 2}),
    ("drain,notice,death,cordon", {}),
    ("roll,unfit,arrive", {"standbys": 1, "once": ()}),
    ("straggle,heavy,arrive", {"stragglers": "act"}),
    ("crash,death,between", KEPT | {"late": True}),
    ("examine,arrive,controller,cordon", {"health": "act", "early": True}),
    ("roll,place,drain,unfit", {"once": (), "nproc": 2}),
    ("narrow,arrive,death", {"stragglers": "act"}),
    ("unfit,crash,death", {"stages": 2, "once": ONCE}),
    ("cut,partition,stop", {}),
    ("ask,unprepared,flip", {"rounds": 3, "nproc": 2, "on_divergence": "replace"}),
    ("sign,roll,death", {"anomalies": "act"}),
    ("imagine,death,ask", ERRS | {"stragglers": "watch", "anomalies": "watch"}),
    ("rot,power,crash", KEPT | {"resumes": 5}),
    ("straggle", {"stragglers": "act", "stages": 1, "alone": False, "once": ()}),
    ("death,power", {"others": ("m5",), "standbys": 3, "wait_s": 1}),
    ("death,crash,power,store", {"snapshots": 3, "checkpoints": 3, "copies": 2}),
    ("stop", {"seconds": 14, "pause_us": 3_000_000}),
    ("death,power,crash", {"late": True}),
    ("death,drill,move", {"stops_early": True, "checkpoints": 3, "snapshots": 3}),
    ("death,crash,move", {"readiness": "idle"}),
    ("imagine,death,power", ERRS | {"standbys": 1}),
    ("death,crash,move", {"readiness": "warm", "once": ("m5",)}),
    ("circles,move", {"seconds": 140, "pause_us": 20_000_000, "step_us": 1_000_000}),
    ("death,power,arrive", {"others": ("m5",), "early": True}),
    ("crash,unfit", UNFIT | {"seconds": 200, "pause_us": 20_000_000, "step_us": 1_000_000}),
    ("partition", {"seconds": 30, "pause_us": 9_000_000}),
    ("death", {"others": ("m3", "m4"), "early": True, "machines": 2, "pause_us": 100_000}),
    ("move", {"resumes": 4, "checkpoints": 5, "others": ONCE}),
    (
        "crash,arrive",
        {
            "seconds": 900,
            "pause_us": 300_000_000,
            "step_us": 10_000_000,
            "fills": ("m2",),
            "tardy": ("m3",),
            "anomalies": "watch",
            "unfit": (("m5", "p0"),),
            "once": ("m6",),
        },
    ),
)
"""Few things that go wrong, and where that is most telling: fields of `Plan`, and knobs."""


def wrong_in(seed: int) -> str:
    """What is wrong in that world; "" if all is well."""
    return play(_plan(seed)).violation


def _plan(seed: int) -> Plan:
    """Of ten: three with everything, one of those in small or large; seven with few that meet."""
    chance = random.Random(f"worlds {seed}")
    turn = seed % 10
    if turn in TURNS:
        number = seed // 10 * len(TURNS) + TURNS.index(turn)
        return _focused(seed, *FOCUSED[number % len(FOCUSED)])
    if turn == 7:
        machines, standbys = chance.choice(((1, 1), (1, 2), (2, 1), (3, 0), (3, 1), (8, 4)))
        return plan_of(seed, machines=machines, standbys=standbys, seconds=4, faults=ALL)
    plan = plan_of(seed, seconds=5, faults=ALL if turn else MORE)
    often = {"snapshots": 3, "checkpoints": 5, "rounds": 3}
    if turn == 4:
        plan.world.update({name: every for name, every in often.items() if plan.world[name]})
    return plan


def _focused(seed: int, names: str, where: dict[str, object]) -> Plan:
    few = names.split(",")
    known: dict[str, Any] = {"seconds": 20 if SLOW & {*few} else 4, "pause_us": 400_000, **where}
    if few == ["straggle"]:
        known["pause_us"] = SELDOM_US
    faults = replace(only(few), pause_us=known.pop("pause_us"))
    plan = plan_of(seed, faults=faults)
    ours = {field.name for field in fields(Plan)}
    for name in ours & known.keys():
        setattr(plan, name, known[name])
    plan.early, plan.late = bool(where.get("early")), bool(where.get("late"))
    plan.world |= {name: its for name, its in known.items() if name not in ours}
    return plan
