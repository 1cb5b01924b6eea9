# SPDX-License-Identifier: Apache-2.0
"""`trainmover roll`, `place`, `plan`: many moves, one after the other; shown until they are over.

The controller carries them out: whoever stops looking, or loses the connection, stops nothing.
"""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from trainmover.cli.client import Client
from trainmover.cli.options import which_run
from trainmover.cli.output import say, say_either
from trainmover.cli.steer.spans import seconds
from trainmover.errors import UserError

_LOOK_S = 0.2
_NOTHING = "Nothing was done."
_FORMS = 'Give ["m3", "m1"], a machine for each slot, or {"0": "m3"}, for those that change.'


def main(options: argparse.Namespace) -> int:
    """0: it is done, or was begun with --detach. 1: refused, or it has stopped."""
    match options.verb:
        case "roll":
            asked = {name: getattr(options, name) for name in ("machines", "at_once", "hold")}
            return _carry_out(Client(which_run(options)), options, "roll", asked)
        case "place":
            return _place(options)
        case _:
            return _plan(options)


def _plan(options: argparse.Namespace) -> int:
    client = Client(which_run(options))
    if options.what == "show":
        plan = client.status()["plan"]
        text = plan["text"] if plan else "There is no plan."
        say_either(plan, text, as_json=options.json)
        return 0
    asked = {"going": options.what == "continue", "reason": options.reason}
    answer = client.ask("plan", asked)
    say_either(answer, answer["text"], as_json=options.json)
    return 0 if answer["ok"] else 1


def _place(options: argparse.Namespace) -> int:
    """Place once; or again and again, until the run ends or a placement stops."""
    every_s = seconds(options.every, "--every") if options.every else None
    if every_s is not None and options.detach:
        raise UserError("--every and --detach exclude each other.", means=_NOTHING, do=_WAITS)
    assign = _read(options.file) if options.file else _imported(options.by)
    client = Client(which_run(options))
    said: list[str] = []
    while True:
        status = client.status()
        now = seats_of(status)
        seats = placed(assign(status), now)
        code = 0
        if options.dry_run:
            if seats != said:
                code = _show_moves(client, now, seats, as_json=options.json)
            said = seats
        elif every_s is None or seats != now:
            code = _carry_out(client, options, "place", {"seats": seats})
        if every_s is None or code:
            return code
        time.sleep(every_s)


def _show_moves(client: Client, now: list[str], then: list[str], *, as_json: bool) -> int:
    """0: these moves would be made. 1: the controller would refuse them."""
    answer = client.ask("place", {"seats": then, "dry_run": True})
    if not answer["ok"]:
        say_either(answer, answer["text"], as_json=as_json, flush=True)
        return 1
    moves = _would_move(now, then)
    say_either({"moves": moves}, _moves_text(moves), as_json=as_json, flush=True)
    return 0


def _would_move(now: list[str], then: list[str]) -> list[dict[str, Any]]:
    """Return which slots would go from where to where."""
    return [
        {"slot": slot, "from": one, "to": other}
        for slot, (one, other) in enumerate(zip_longest(now, then, fillvalue="nobody"))
        if one != other
    ]


def _moves_text(moves: list[dict[str, Any]]) -> str:
    if not moves:
        return "Every slot is where it would be. Nothing was done."
    told = ", ".join(f"slot {move['slot']}: {move['from']} -> {move['to']}" for move in moves)
    return f"{told}. Nothing was done."


_WAITS = "Leave --detach out: what comes every so often waits for what came before."


def _carry_out(
    client: Client, options: argparse.Namespace, what: str, asked: Mapping[str, Any]
) -> int:
    answer = client.ask(what, {**asked, "reason": options.reason})
    if options.detach or not answer["ok"]:
        say_either(answer, answer["text"], as_json=options.json)
        return 0 if answer["ok"] else 1
    if not options.json:
        say(answer["text"], flush=True)
    plan = _followed(client, quiet=options.json)
    say_either(plan, plan["text"], as_json=options.json, flush=True)
    return 0 if plan["standing"] == "done" else 1


def _followed(client: Client, *, quiet: bool) -> dict[str, Any]:
    """Return the plan once it goes no more; says which machines are through meanwhile."""
    known: set[str] = set()
    while True:
        plan: dict[str, Any] = client.status()["plan"]
        for name in () if quiet else plan["over"]:
            if name not in known:
                say(f"{name} is through ({plan['text']})", flush=True)
        known |= set(plan["over"])
        if plan["standing"] != "going":
            return plan
        time.sleep(_LOOK_S)


# --- who is to have what --------------------------------------------------------------------------


def seats_of(status: Mapping[str, Any]) -> list[str]:
    """Slot -> the machine that has it.

    >>> seats_of({"machines": [{"id": "m1", "ranks": [2, 3]}, {"id": "m2", "ranks": [0, 1]},
    ...                        {"id": "m3", "ranks": []}]})
    ['m2', 'm1']
    """
    having = [machine for machine in status["machines"] if machine["ranks"]]
    return [machine["id"] for machine in sorted(having, key=lambda machine: machine["ranks"][0])]


def placed(given: object, now: list[str]) -> list[str]:
    """Slot -> the machine that is to have it. Raises UserError if that was not said.

    >>> placed({"1": "m5"}, ["m1", "m2"]), placed(["m2", "m1"], ["m1", "m2"])
    (['m1', 'm5'], ['m2', 'm1'])
    """
    if isinstance(given, list | tuple) and all(isinstance(name, str) for name in given):
        return [*given]
    if isinstance(given, Mapping):
        seats = dict(enumerate(now))
        for slot, name in given.items():
            if not str(slot).isdecimal() or int(slot) not in seats or not isinstance(name, str):
                why = f"{slot!r}: {name!r} is none of the slots 0 to {len(now) - 1} with a machine."
                raise UserError(why, means=_NOTHING, do=_FORMS)
            seats[int(slot)] = name
        return [*seats.values()]
    kind = type(given).__name__
    raise UserError(f"A {kind} is no assignment of machines.", means=_NOTHING, do=_FORMS)


def _read(path: Path) -> Callable[[object], object]:
    try:
        known: object = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        why = f"--from {path} cannot be read: {error}."
        raise UserError(why, means=_NOTHING, do=_FORMS) from error
    return lambda status: known


def _imported(given: str) -> Callable[[object], object]:
    """Return the function that `FILE.py:FUNCTION` names."""
    path, _, name = given.rpartition(":")
    spec = importlib.util.spec_from_file_location("placement", path) if path else None
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UserError(
            f"--by {given} names no function in a file of Python's.",
            means=_NOTHING,
            do="Give the file and the function: --by racks.py:assign",
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[object], object] | None = getattr(module, name, None)
    if not callable(function):
        have = ", ".join(one for one in vars(module) if callable(getattr(module, one))) or "none"
        raise UserError(f"{path} has no function {name}.", means=_NOTHING, do=f"It has: {have}.")
    return function
