# SPDX-License-Identifier: Apache-2.0
"""`trainmover losses`: the committed numbers of every step, so that two runs can be compared.

Numbers have as many digits as make them exact: files of two runs are equal if their bits are.
"""

import argparse
import csv
import io
from collections.abc import Iterator, Sequence

from trainmover.cli.options import which_run
from trainmover.cli.output import say, say_json
from trainmover.escaping import one_line
from trainmover.journal import Journal
from trainmover.journal.rows import CommittedRow, numbers

_PLACE = ("rank", "step")


def main(options: argparse.Namespace) -> int:
    """0: all committed rows were written. 1: there are none."""
    with Journal.open(options.journal or which_run(options).journal) as journal:
        rows = (row for row in journal.rows() if options.rank in (None, row.rank))
        count = _say_json(rows) if options.json else _say_csv(rows, _names(journal))
    return 0 if count else 1


def _names(journal: Journal) -> list[str]:
    """Names of all numbers that any step has reported, in the order in which they came."""
    return list(dict.fromkeys(name for row in journal.rows() for name in row.values))


def _say_csv(rows: Iterator[CommittedRow], names: Sequence[str]) -> int:
    say(_line([*_PLACE, *map(one_line, names)]))
    count = 0
    for row in rows:
        count += 1
        numbers = [repr(row.values[name]) if name in row.values else "" for name in names]
        say(_line([str(row.rank), str(row.step), *numbers]))
    return count


def _line(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def _say_json(rows: Iterator[CommittedRow]) -> int:
    """Print one object a line."""
    count = 0
    for row in rows:
        count += 1
        say_json({"rank": row.rank, "step": row.step, "values": numbers(row)})
    return count
