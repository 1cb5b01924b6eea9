# SPDX-License-Identifier: Apache-2.0
"""`trainmover report`: where the time of a run went, and what its incidents have cost."""

import argparse
import json
from datetime import datetime
from pathlib import Path

from trainmover.cli.options import which_run
from trainmover.cli.output import say_either
from trainmover.cli.report import page, text
from trainmover.cli.report.forms import check_name
from trainmover.cli.report.goodput import Goodput, goodput
from trainmover.cli.report.reading import family, runs
from trainmover.errors import UserError
from trainmover.escaping import escape
from trainmover.version import VERSION


def main(options: argparse.Namespace) -> int:
    """0, whatever there is to report."""
    account = goodput(runs(_journals(options)))
    if options.out is not None:
        write(check_name(options.out), account)
    say_either(text.as_json(account), "\n".join(text.lines(account)), as_json=options.json)
    return 0


def _journals(options: argparse.Namespace) -> list[Path]:
    given: list[Path] = options.journal or [Path(which_run(options).journal)]
    return family(given[0]) if len(given) == 1 else given


def write(path: Path, account: Goodput) -> None:
    """Write a report in the form that its name says. Raises UserError if it cannot be."""
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    forms = {
        ".html": lambda: page.page(account, f"made by trainmover {VERSION}, {now}"),
        ".json": lambda: json.dumps(text.as_json(account), indent=2) + "\n",
        ".txt": lambda: escape("\n".join(text.lines(account)) + "\n"),
    }
    try:
        path.write_text(forms[path.suffix]())
    except OSError as error:
        raise UserError(
            f"The report {path} could not be written: {error.strerror}.",
            means="Nothing else was changed by that.",
            do="Give it a place that can be written.",
        ) from error
