# SPDX-License-Identifier: Apache-2.0
"""`trainmover check train.py`: what of a script is carried, and do its steps repeat?"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainmover.cli.check.processes import Wanted, folder_of, run_all, tail_of
from trainmover.cli.check.text import RUN, STANDBY, is_equal, lines_of
from trainmover.cli.exit_codes import DONE, FAILED
from trainmover.cli.output import redraw, say, say_json
from trainmover.errors import UserError

_WARM_UP_OF_STANDBY = 3
"""Updates that a standby makes before it takes over: as many as a shadow run makes."""
_CAPTURE = "capture"


def main(options: argparse.Namespace) -> int:
    """Check a script. Exit status 1 if it is not protected, or if something differs."""
    _refuse_bad_call(options)
    with tempfile.TemporaryDirectory(prefix="trainmover-check-") as folder:
        wanted = Wanted(
            Path(folder),
            [options.script, *options.arguments],
            options.module,
            options.nproc,
            options.steps,
            options.timeout,
        )
        ranks = _check(wanted, options.after, with_standby=not options.no_standby)
    equal = all(is_equal(one) for found in ranks for one in found.values())
    if options.json:
        say_json({"script": options.script, "equal": equal, "ranks": ranks})
    else:
        say("\n".join(lines_of(ranks)))
    return DONE if equal else FAILED


def _check(wanted: Wanted, warm_up: int, *, with_standby: bool) -> list[dict[str, Any]]:
    """Return results by role, for each rank."""
    ranks = [{RUN: one} for one in _run(wanted, RUN, warm_up)]
    captured = [(folder_of(wanted, rank) / _CAPTURE).exists() for rank in range(wanted.ranks)]
    if with_standby and all(captured):
        for found, one in zip(ranks, _run(wanted, STANDBY, _WARM_UP_OF_STANDBY), strict=True):
            found[STANDBY] = one
    return ranks


def _run(wanted: Wanted, role: str, warm_up: int) -> list[dict[str, Any]]:
    if sys.stderr.isatty():
        redraw(f"{role}: the first steps of {wanted.script[0]}", sys.stderr)
    results = run_all(wanted, role, warm_up)
    if sys.stderr.isatty():
        redraw("", sys.stderr)
    for rank, one in enumerate(results):
        if one["error"]:
            say(tail_of(wanted, role, rank), to=sys.stderr)
    return results


def _refuse_bad_call(options: argparse.Namespace) -> None:
    if min(options.steps, options.after, options.nproc) < 1:
        raise UserError(
            "--steps, --after and --nproc are at least 1.",
            means="Nothing was checked.",
            do="Leave them as they are, or give larger numbers.",
        )
    if not options.module and not Path(options.script).is_file():
        raise UserError(
            f"There is no script {options.script}.",
            means="Nothing was checked.",
            do="Give the path of a file, or -m and the name of a module.",
        )
