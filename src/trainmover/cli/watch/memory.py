# SPDX-License-Identifier: Apache-2.0
"""`trainmover memory`: what training and trainmover hold in host memory, rank by rank."""

import argparse
from typing import Any

from trainmover.cli.client import Client
from trainmover.cli.console import Table, Terminal, whole_lines
from trainmover.cli.options import which_run
from trainmover.cli.output import say_json
from trainmover.cli.watch.standbys import size

_KINDS = ("state", "gradients", "snapshot", "record", "communicator")


def main(options: argparse.Namespace) -> int:
    """Ask once and print."""
    memory = Client(which_run(options)).status()["memory"]
    if options.json:
        say_json(memory)
    else:
        show(memory, whole_lines())
    return 0


def show(memory: dict[str, Any], console: Terminal) -> None:
    """Print a table of ranks, as each last said, and one of what machines keep for others."""
    if memory["ranks"]:
        console.print(_ranks(memory["ranks"]))
    else:
        console.print("No rank has made its first steps yet.")
    console.print(_machines(memory["machines"]))


def _ranks(ranks: list[dict[str, Any]]) -> Table:
    shown = [kind for kind in _KINDS if any(kind in rank["kinds"] for rank in ranks)]
    table = _table("RANK", "MACHINE", *(kind.upper() for kind in shown), "PROCESS", "PEAK")
    for rank in ranks:
        kinds = [size(rank["kinds"][kind]) if kind in rank["kinds"] else "-" for kind in shown]
        whole = (size(rank["rss"]), size(rank["peak"]))
        table.add_row(str(rank["rank"]), rank["machine"] or "-", *kinds, *whole)
    return table


def _machines(machines: list[dict[str, Any]]) -> Table:
    table = _table("MACHINE", "KEPT FOR OTHERS", "AT MOST")
    for machine in machines:
        most = size(machine["vault_max"]) if machine["vault_max"] else "-"
        table.add_row(machine["machine"], size(machine["vault"]), most)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table
