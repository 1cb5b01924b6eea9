# SPDX-License-Identifier: Apache-2.0
"""`trainmover incident 2`: what happened, who said where it stood, and what proves the result."""

import argparse
from collections.abc import Iterator
from typing import Any

from trainmover.cli.client import Client
from trainmover.cli.console import Table, Terminal, whole_lines
from trainmover.cli.options import which_run
from trainmover.cli.output import say_json
from trainmover.cli.watch.standbys import size
from trainmover.cli.watch.status import incident_line
from trainmover.errors import UserError
from trainmover.escaping import indented, one_line
from trainmover.journal.replay import incidents
from trainmover.server.ranks import ranks_text
from trainmover.server.view.snapshot import incident_json

_WAYS = {
    1: "the step is run again",
    2: "all ranks go back to a snapshot",
    3: "all start again",
}


def main(options: argparse.Namespace) -> int:
    """Print an incident; the last one, if none is named."""
    incident = _asked_for(options)
    if options.json:
        say_json(incident)
    else:
        show(incident, whole_lines())
    return 0


def _asked_for(options: argparse.Namespace) -> dict[str, Any]:
    """Return an incident; a status has the newest, others are asked for one by one."""
    number: int | None = options.number
    if options.journal is not None:
        return _chosen([incident_json(one) for one in incidents(options.journal)], number)
    client = Client(which_run(options))
    known: list[dict[str, Any]] = client.status()["incidents"]
    if number is not None and known and 0 < number < known[0]["number"]:
        return client.incident(number)
    return _chosen(known, number)


def _chosen(incidents: list[dict[str, Any]], number: int | None) -> dict[str, Any]:
    if incidents and number is None:
        return incidents[-1]
    chosen = [incident for incident in incidents if incident["number"] == number]
    if chosen:
        return chosen[0]
    there = f"there are {incidents[-1]['number']}" if incidents else "there was none"
    raise UserError(
        f"There is no incident {number}: {there}." if number else "There was no incident.",
        means="There is nothing to show.",
        do="See what has happened: trainmover events",
    )


def show(incident: dict[str, Any], console: Terminal) -> None:
    """Print an incident for people."""
    console.print_line(incident_line(incident))
    for name, text in _facts(incident):
        _fact(console, name, text)
    for rank, stack in incident["stacks"].items():
        console.print(f"  where rank {rank} stood:")
        for line in stack.splitlines():
            console.print_line(f"    {line}")
    if incident["options"]:
        console.print(_options(incident))
    if incident["positions"]:
        console.print(_votes(incident))
    for certificate in incident["certificates"]:
        for name, text in _certificate(certificate):
            _fact(console, name, text)


def _fact(console: Terminal, name: str, text: str) -> None:
    first = f"  {one_line(name):<12}"
    console.print(first + indented(text, len(first)))


def _facts(incident: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "cause", incident["cause"]
    if incident["read_from"]:
        yield "trouble", f"{incident['trouble']} (read from: {incident['read_from']})"
    if incident["ranks"]:
        yield "ranks", ranks_text(incident["ranks"])
    if incident["rung"]:
        yield "way", _way(incident)
    yield "membership", str(incident["epoch"])
    if incident["step"] is not None:
        yield "step", f"{incident['step']} is the last that counts"
    if incident["redone"]:
        yield "redone", f"{incident['redone']} committed steps, with the same numbers"
    for name, phase_ms in incident["phases_ms"].items():
        goes_on = ", training goes on" if name in incident["phases_before"] else ""
        yield name, f"{phase_ms:.1f} ms{goes_on}"
    if incident["downtime_ms"] is not None and incident["adds_up"]:
        name = "pause" if incident["kind"] == "move" else "downtime"
        yield name, f"{incident['downtime_ms']:.0f} ms = {incident['adds_up']}"
    for rank, steps in sorted(incident["held"].items(), key=lambda item: int(item[0])):
        yield "record", f"of rank {rank} was held for step {', '.join(map(str, steps)) or '-'}"


def _way(incident: dict[str, Any]) -> str:
    """Return the option that was taken, as the table names it, and what that meant for steps."""
    redone = f"{_WAYS[incident['rung']]}: {incident['why_rung']}"
    return f"{incident['way']}; {redone}" if incident["way"] else redone


def _options(incident: dict[str, Any]) -> Table:
    """Return what could have been done about it, as it was known when it began."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for name in ("", "OPTION", "COST", "WHY"):
        table.add_column(name, no_wrap=name != "WHY")
    for one in incident["options"]:
        cost = "-" if one["ms"] is None else f"{one['ms']:.0f} ms"
        done = one["name"] == incident["way"]
        table.add_row("*" if done else "", one["name"], cost, one["why"])
    if not any(one["name"] == incident["way"] for one in incident["options"]):
        table.add_row("*", incident["way"], "-", incident["why_rung"])
    return table


def _votes(incident: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for name in ("RANK", "COMMITTED", "STOOD"):
        table.add_column(name, no_wrap=True)
    for vote in incident["positions"]:
        table.add_row(str(vote["rank"]), str(vote["committed"]), stood(vote))
    return table


def stood(vote: dict[str, Any]) -> str:
    """Return where a rank was when it stopped for the change.

    >>> stood({"gate": 8, "committed": 7, "finished": False})
    'at the commit of step 8'
    """
    if vote["finished"]:
        return "at the end of its script"
    if vote["gate"]:
        return f"at the commit of step {vote['gate']}"
    return f"before the commit of step {vote['committed'] + 1}"


def _certificate(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what shows that a joiner trains on what its source held."""
    yield f"rank {one['rank']}", f"{_sources(one)} in {one['state_ms']:.1f} ms"
    told = f"{one['source_digest']} at the source, "
    yield "", told + ("the same here" if one["equal"] else f"{one['joiner_digest']} HERE")
    yield "", f"after step {one['step']}, membership {one['epoch']}; {one['position']}"


def _sources(certificate: dict[str, Any]) -> str:
    """Return the rank whose state it is, and who gave the bytes if there were several."""
    given = {int(rank): count for rank, count in certificate["given"].items() if count}
    parts = ", ".join(f"{size(given[rank])} from rank {rank}" for rank in sorted(given))
    several = f" ({parts})" if len(given) > 1 else ""
    whole = size(certificate["bytes"])
    held = f", beside {size(certificate['held'])} that it had" if certificate["held"] else ""
    return f"has the state of rank {certificate['source_rank']}: {whole}{several}{held}"
