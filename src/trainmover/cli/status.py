"""`trainmover status`: machines, ranks, step, speed, and the last incidents."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from trainmover.cli.client import Client
from trainmover.cli.options import add_which_run, parser_for, which_run

SUMMARY = "show machines, ranks, steps and incidents of a live run"
INCIDENTS_SHOWN = 5


def main(argv: list[str]) -> int:
    """Ask once and print."""
    parser = parser_for("status", SUMMARY)
    add_which_run(parser)
    options = parser.parse_args(argv)
    status = Client(which_run(options)).status()
    if options.json:
        print(json.dumps(status))
    else:
        show(status, Console(highlight=False, soft_wrap=True))
    return 0


def show(status: dict[str, Any], console: Console) -> None:
    """Print a snapshot for people."""
    console.print(headline(status))
    console.print(_machines(status["machines"]))
    for incident in status["incidents"][-INCIDENTS_SHOWN:]:
        console.print(incident_line(incident))


def headline(status: dict[str, Any]) -> str:
    """run, phase, epoch, step, loss, speed."""
    parts = [f"run {status['run']}", status["phase"], f"epoch {status['epoch']}"]
    parts.append(f"step {status['step']}")
    if status["loss"] is not None:
        parts.append(f"loss {status['loss']:.6g}")
    if status["step_ms"] is not None:
        parts.append(f"{status['step_ms']:.0f} ms/step")
    if status["change"]:
        parts.append(f"{status['change']['kind']}: {status['change']['stage']}")
    return "  ".join(parts)


def incident_line(incident: dict[str, Any]) -> str:
    """One incident, one line."""
    who = f"{incident['machine'] or 'a link'} -> {incident['joiner'] or 'retried in place'}"
    parts = [f"#{incident['number']} {incident['kind']} {who}", incident["outcome"]]
    if incident["step"] is not None:
        parts.append(f"after step {incident['step']}")
    if incident["downtime_ms"] is not None:
        parts.append(f"downtime {incident['downtime_ms']:.0f} ms")
    if incident["certificates"]:
        equal = all(certificate["equal"] for certificate in incident["certificates"])
        parts.append("state equal" if equal else "STATE DIFFERS")
    return "  ".join(parts) + (f"  ({incident['note']})" if incident["note"] else "")


def _machines(machines: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("MACHINE", "STATE", "RANKS", "STEP", "MS/STEP", "LAST SEEN", ""):
        table.add_column(name, no_wrap=bool(name))
    for machine in machines:
        speed = machine["step_ms"]
        table.add_row(
            machine["id"],
            machine["state"],
            ranks_text(machine["ranks"]),
            "-" if machine["step"] is None else str(machine["step"]),
            "-" if speed is None else f"{speed:.0f}",
            f"{machine['last_seen_s']:.1f} s",
            machine["note"],
        )
    return table


def ranks_text(ranks: list[int]) -> str:
    """Consecutive ranks as a span; a machine's ranks always are."""
    if len(ranks) < 2:
        return str(ranks[0]) if ranks else "-"
    return f"{ranks[0]}-{ranks[-1]}"
