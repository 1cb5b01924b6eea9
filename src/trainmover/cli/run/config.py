# SPDX-License-Identifier: Apache-2.0
"""`trainmover config`: what a run that is started here takes from file and environment."""

import argparse
import os

from trainmover.cli.output import say_either
from trainmover.cli.run.settings import FILE, settings


def main(options: argparse.Namespace) -> int:
    """Show each flag, its value, and where it stands; what the next one overrides, too."""
    argv = [] if options.config is None else [f"--config={options.config}"]
    found = settings(argv, os.environ)
    rows = [("FLAG", "VALUE", "FROM")]
    rows += [(one.flag, "on" if one.value is None else one.value, one.source) for one in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    none = f"nothing: no {FILE} here, and no variable; the command line says it all"
    values = [{"flag": one.flag, "value": one.value, "from": one.source} for one in found]
    say_either(values, "\n".join(lines) if found else none, as_json=options.json)
    return 0
