# SPDX-License-Identifier: Apache-2.0
"""Table of machines, as wide and as long as there is room: trouble first, nothing cut but names."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from trainmover.cli.console import Table
from trainmover.escaping import one_line
from trainmover.server.ranks import ranks_text

LEAST_NAME = 12
"""Columns that a name needs to be known."""
SLOW = 1.5
_GAP = 2
_OPTIONAL = ("LAST SEEN", "MS/STEP", "STEP")
"""What is left out where there is no room, the first first."""


def machine_lines(
    status: dict[str, Any], width: int, rows: int | None = None
) -> Iterator[Table | str]:
    """Yield the table, then what did not fit beside or into it. rows: so many at most."""
    machines = status["machines"]
    if rows is not None and rows < len(machines):
        machines = sorted(machines, key=lambda one: -_trouble(one, status["step_ms"]))[:rows]
    cells = [_cells(machine) for machine in machines]
    names = short_names([one_line(one["id"]) for one in machines], _name_width(cells, width))
    shown = _fitting(cells, width)
    longest = max(map(len, names), default=0)
    beside = _width(cells, shown) + longest + max((len(_note(one)) for one in machines), default=0)
    notes_beside = beside + _GAP <= width
    yield _table(names, cells, shown, [_note(one) for one in machines] if notes_beside else [])
    if not notes_beside:
        yield from (f"{one['id']}: {note}" for one in machines if (note := _note(one)))
    if more := _more(status["machines"], machines):
        yield more


def _table(
    names: list[str], cells: list[dict[str, str]], shown: list[str], notes: list[str]
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for head in ("MACHINE", *shown, *([""] if notes else [])):
        table.add_column(head, no_wrap=True)
    for index, (name, row) in enumerate(zip(names, cells, strict=True)):
        table.add_row(name, *(row[head] for head in shown), *notes[index : index + 1])
    return table


def _cells(machine: dict[str, Any]) -> dict[str, str]:
    speed, state = machine["step_ms"], one_line(machine["state"])
    return {
        "STATE": f"{state}, away" if machine.get("away") else state,
        "RANKS": ranks_text(machine["ranks"]),
        "STEP": "-" if machine["step"] is None else str(machine["step"]),
        "MS/STEP": "-" if speed is None else f"{speed:.0f}",
        "LAST SEEN": f"{machine['last_seen_s']:.1f} s",
    }


def _fitting(cells: list[dict[str, str]], width: int) -> list[str]:
    """Columns for which there is room beside a short name."""
    shown = ["STATE", "RANKS", "STEP", "MS/STEP", "LAST SEEN"]
    for head in _OPTIONAL:
        if _width(cells, shown) + LEAST_NAME <= width:
            break
        shown.remove(head)
    return shown


def _width(cells: list[dict[str, str]], shown: Sequence[str]) -> int:
    return sum(_GAP + max([len(head), *(len(row[head]) for row in cells)]) for head in shown)


def _name_width(cells: list[dict[str, str]], width: int) -> int:
    return max(LEAST_NAME, width - _width(cells, _fitting(cells, width)) - _GAP)


def short_names(names: list[str], width: int) -> list[str]:
    """Return names of at most `width` characters: without the domain that all have, then without
    what is in the middle.

    >>> short_names(["ip-10-0-1-10.eu.internal", "ip-10-0-1-11.eu.internal"], 16)
    ['ip-10-0-1-10…', 'ip-10-0-1-11…']
    >>> short_names(["m1", "a-long-name-that-ends-in-7"], 12)
    ['m1', 'a-lon…s-in-7']
    """
    if all(len(name) <= width for name in names):
        return names
    domain = _common_domain(names)
    bare = [f"{name.removesuffix(domain)}…" if domain else name for name in names]
    return [_without_middle(name, width) for name in bare]


def _common_domain(names: Sequence[str]) -> str:
    """Return the longest ending that begins with a dot and is common to all; "" if there is
    none."""
    if len(names) < 2:
        return ""
    labels = names[0].split(".")
    endings = ("." + ".".join(labels[first:]) for first in range(1, len(labels)))
    return next((one for one in endings if all(name.endswith(one) for name in names)), "")


def _without_middle(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    tail = width // 2
    return f"{name[: width - tail - 1]}…{name[-tail:]}"


def _trouble(machine: dict[str, Any], step_ms: float | None) -> int:
    """Return how much somebody wants to see a machine: away, in transition, cordoned, slow, has
    ranks."""
    slow = machine["step_ms"] and step_ms and machine["step_ms"] > SLOW * step_ms
    signs = (
        machine.get("away"),
        machine["state"] not in ("active", "warm"),
        machine["cordoned"] is not None,
        slow,
    )
    return sum(2 ** (len(signs) - index) for index, sign in enumerate(signs) if sign)


def _more(machines: Collection[dict[str, Any]], shown: Collection[dict[str, Any]]) -> str:
    """Return which are not shown; "" if all are."""
    count = len(machines) - len(shown)
    if not count:
        return ""
    left = Counter(one["state"] for one in machines)
    left.subtract(Counter(one["state"] for one in shown))
    told = ", ".join(f"{number} {state}" for state, number in left.items() if number)
    return f"... {count} more: {told}"


def _note(machine: dict[str, Any]) -> str:
    return one_line(_said_of(machine))


def _said_of(machine: dict[str, Any]) -> str:
    cordon = machine["cordoned"]
    if cordon is None:
        return str(machine["note"])
    why = f": {cordon['reason']}" if cordon["reason"] else ""
    return f"cordoned{why}" + (f"; {machine['note']}" if machine["note"] else "")
