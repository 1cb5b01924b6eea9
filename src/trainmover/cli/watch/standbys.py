# SPDX-License-Identifier: Apache-2.0
"""`trainmover standbys`: what each standby has proven, kind by kind, and what its joining costs."""

import argparse
from typing import Any

from trainmover.cli.client import Client
from trainmover.cli.console import Table, Terminal, whole_lines
from trainmover.cli.options import which_run
from trainmover.cli.output import say_json

_COLUMNS = (
    "STANDBY",
    "RANKS",
    "STATE",
    "COLLECTIVES",
    "WARMED",
    "SECOND RUN",
    "MEMORY",
    "DOWNTIME",
    "RECORD",
    "",
)


def main(options: argparse.Namespace) -> int:
    """Ask once and print."""
    status = Client(which_run(options)).status()
    if options.json:
        say_json({key: status[key] for key in ("run", "redundancy", "standbys", "roles")})
    else:
        show(status, whole_lines())
    return 0


def show(status: dict[str, Any], console: Terminal) -> None:
    """Print a row for each standby and kind of ranks it may have to take."""
    redundancy = status["redundancy"]
    console.print_line(redundancy["text"], style="bold yellow" if redundancy["alarm"] else None)
    if not status["standbys"]:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in _COLUMNS:
        table.add_column(name, no_wrap=bool(name))
    for row in status["standbys"]:
        table.add_row(*_cells(row))
    console.print(table)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["machine"],
        spans(row["ranks"]),
        f"holds {spans(row['holds'])}" if row["holds"] else row["state"],
        {True: "equal", False: "failed", None: "-"}[row["trace_equal"]] + " (old)" * row["stale"],
        _shown(row["warmed_s"], "{:.0f} s ago"),
        _shown(row["second_run_ms"], "{:.0f} ms"),
        _memory(row),
        _predicted(row),
        _record(row),
        "; ".join(filter(None, ("cordoned" * row["cordoned"], row["note"]))),
    ]


def _memory(row: dict[str, Any]) -> str:
    """Return the memory used of the host, and of the GPU where it uses one."""
    device = f", GPU {size(row['device_bytes'])}" if row["device_bytes"] else ""
    return _shown(row["held_bytes"], "{}", size) + device


def _predicted(row: dict[str, Any]) -> str:
    """Return the downtime predicted of a loss of the ranks that it holds, and of others."""
    best, else_ms = row["predicted_ms"], row["predicted_else_ms"]
    if best == else_ms or len(row["slots"]) == 1:
        return _shown(best, "{:.0f} ms")
    return f"{best:.0f} ms, others {else_ms:.0f} ms"


def _record(row: dict[str, Any]) -> str:
    kept, full = row["record_bytes"], row["record_bytes_full"]
    if not kept:
        return "-"
    return size(kept) + (f" of {size(full)}" if full else "")


def _shown(value: Any, text: str, form: Any = lambda value: value) -> str:
    return "-" if value is None else text.format(form(value))


def spans(ranks: list[int]) -> str:
    """Ranks, runs of them as spans.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    ends: list[list[int]] = []
    for rank in ranks:
        if ends and rank == ends[-1][1] + 1:
            ends[-1][1] = rank
        else:
            ends.append([rank, rank])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in ends) or "-"


def size(count: int) -> str:
    """Bytes for people.

    >>> size(999), size(4_700_000)
    ('999 B', '4.7 MB')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"
