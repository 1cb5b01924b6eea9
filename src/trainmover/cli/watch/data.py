# SPDX-License-Identifier: Apache-2.0
"""`trainmover data`: which samples the committed steps used, and whether each came exactly once."""

import argparse
from typing import Any

from trainmover.cli.console import Table, Terminal, whole_lines
from trainmover.cli.options import which_run
from trainmover.cli.output import say_json
from trainmover.journal import Journal
from trainmover.journal.samples import DataPass, Used, data_passes
from trainmover.server.ranks import ranks_text

REPEATED_SHOWN = 5


def main(options: argparse.Namespace) -> int:
    """0: every sample came once in its data pass, or nothing is known. 1: some came again."""
    with Journal.open(options.journal or which_run(options).journal) as journal:
        used = list(journal.used())
    passes = data_passes(used)
    _print(used, passes, options)
    return 1 if any(whole.repeated for whole in passes) else 0


def _print(used: list[Used], passes: list[DataPass], options: argparse.Namespace) -> None:
    if options.json:
        say_json({"passes": [_pass(whole) for whole in passes], "steps": _steps(used)})
        return
    console = whole_lines()
    if not passes:
        console.print("No loop was asked for its samples: job.batches(loader, samples=True)")
        return
    console.print(_table(passes))
    for whole in passes:
        _show_repeated(whole, console)
    if options.steps:
        for step in _steps(used):
            loop = f"loop {step['loop']} pass {step['pass']}"
            ids = " ".join(map(str, step["ids"]))
            console.print_line(f"step {step['step']}  rank {step['rank']}  {loop}: {ids}")


def _table(passes: list[DataPass]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("LOOP", "PASS", "STEPS", "RANKS", "SAMPLES", "EACH ONCE"):
        table.add_column(name, no_wrap=True)
    for whole in passes:
        first, last = whole.steps
        again = len(whole.repeated)
        table.add_row(
            whole.source,
            str(whole.data_pass),
            f"{first}-{last}",
            ranks_text(whole.ranks),
            str(len(whole.places)),
            f"NO: {again} came again" if again else "yes",
        )
    return table


def _show_repeated(whole: DataPass, console: Terminal) -> None:
    where = f"loop {whole.source} pass {whole.data_pass}"
    for id_, places in list(whole.repeated.items())[:REPEATED_SHOWN]:
        steps = ", ".join(f"step {step} (rank {rank})" for step, rank in places)
        console.print_line(f"{where}: {id_} in {steps}")


def _pass(whole: DataPass) -> dict[str, Any]:
    first, last = whole.steps
    return {
        "loop": whole.source,
        "pass": whole.data_pass,
        "first_step": first,
        "last_step": last,
        "ranks": whole.ranks,
        "drawn": whole.drawn,
        "samples": len(whole.places),
        "once": not whole.repeated,
        "repeated": [{"id": id_, "places": places} for id_, places in whole.repeated.items()],
    }


def _steps(used: list[Used]) -> list[dict[str, Any]]:
    return [
        {
            "step": one.step,
            "rank": one.rank,
            "loop": draw.source,
            "pass": draw.data_pass,
            "ids": draw.ids,
        }
        for one in used
        for draw in one.draws
    ]
