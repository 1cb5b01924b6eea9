# SPDX-License-Identifier: Apache-2.0
"""The figures as tables: as Markdown for the result's file, by rich for the screen."""

import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import rich.box
import rich.console
import rich.table

from bench.collectives.abort import ARMS as ABORT_ARMS
from bench.collectives.abort import KINDS, SOCKET, Aborts
from bench.collectives.calls import ALONE, MPI, OURS, Calls, Cell
from bench.collectives.claims import best_ratio, growths, ratio
from bench.collectives.codes import WAYS as CODE_WAYS
from bench.collectives.codes import Codes
from bench.collectives.scale import Scale
from bench.collectives.shim import WAYS, Added
from bench.collectives.switchover import Case, Switchovers
from bench.collectives.timing import Spent, pair_said, said, size_said

CALL_ARMS = (*OURS, "gloo", *MPI)
WIDTH = 240  # so that nothing is cut; a table takes what it needs


@dataclass(frozen=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> list[str]:
        lines = [f"**{self.title}**", ""]
        lines += [_line(self.header), _line(["---"] * len(self.header))]
        return [*lines, *map(_line, self.rows), ""]

    def screen(self) -> list[str]:
        drawn = rich.table.Table(box=rich.box.SIMPLE)
        for i, name in enumerate(self.header):
            drawn.add_column(name, justify="right" if i else "left", no_wrap=True)
        for row in self.rows:
            drawn.add_row(*row)
        console = rich.console.Console(file=io.StringIO(), width=WIDTH, highlight=False)
        with console.capture() as capture:
            console.print(drawn)
        lines = [line.rstrip() for line in capture.get().split("\n") if line.strip()]
        return [self.title, *lines, ""]


def of_calls(calls: Calls) -> list[Table]:
    """all_reduce with everybody; then the others, ours and gloo."""
    others = [cell for cell in calls.times if cell.operation != "all_reduce"]
    tables = [_all_reduce(calls)]
    if others:
        tables.append(_others(calls, others))
    return tables


def _all_reduce(calls: Calls) -> Table:
    arms = [arm for arm in CALL_ARMS if any(cell.arm == arm for cell in calls.times)]
    rows = []
    for ranks, _, size in _keys(cell for cell in calls.times if cell.operation == "all_reduce"):
        cells = [_best_and_median(calls, Cell(arm, ranks, "all_reduce", size)) for arm in arms]
        ratios = [_ratio(calls, Cell(arm, ranks, "all_reduce", size)) for arm in OURS]
        rows.append((f"{ranks}, {size_said(size)}", *cells, *ratios))
    if alone := calls.times.get(ALONE):
        rows.append(("the call, no peer", _spent(alone), *[""] * (len(arms) + 1)))
    title = "all_reduce, f32 sum: best (median) of the rounds; gloo / ours: best (median)"
    return Table(title, ("ranks, size", *arms, "gloo / shm", "gloo / tcp"), rows)


def _others(calls: Calls, cells: list[Cell]) -> Table:
    rows = []
    for ranks, operation, size in _keys(cells):
        arms = [Cell(arm, ranks, operation, size) for arm in (*OURS, "gloo")]
        times = [_best_and_median(calls, cell) for cell in arms]
        rows.append((f"{operation}, {ranks}, {size_said(size)}", *times))
    title = "The others: best (median) of the rounds; size = the vector of all ranks' parts"
    return Table(title, ("operation, ranks, size", *OURS, "gloo"), rows)


def of_shim(added: Added) -> list[Table]:
    rows = [(way, _spent(times)) for way, times in added.times.items()]
    each = added.each_us()
    rows.append(("added", pair_said(min(each), added.median_us())))
    title = "dist.all_reduce through the shim, 2 ranks, 8 B, one host: best (median) of the rounds"
    assert set(added.times) == set(WAYS)
    return [Table(title, ("way", "time"), rows)]


def of_codes(codes: Codes) -> list[Table]:
    rows = []
    for size in codes.sizes():
        plain, _, encrypted = (codes.times[size, way] for way in CODE_WAYS)
        cost = said(codes.added_us(size)), f"{codes.share(size):.2%}"
        rows.append(
            (
                size_said(size),
                _spent(plain),
                *cost,
                _spent(encrypted),
                f"{best_ratio(encrypted, plain):.2g}",
            )
        )
    title = "all_reduce, 2 ranks over loopback TCP: codes of frames, and encryption; best (median)"
    header = ("size", "plain", "of it codes", "share", "encrypted", "/ plain")
    return [Table(title, header, rows)]


def of_switchovers(found: Switchovers) -> list[Table]:
    """A row for each number of processes and groups."""
    rows = []
    cases = {(case.processes, case.groups) for case in (*found.middle, *found.left_out)}
    for processes, groups in sorted(cases):
        row = [f"{processes}, {groups}"]
        for arm in (*OURS, "gloo"):
            row += _switched(found, Case(arm, processes, groups))
        rows.append(tuple(row))
    header = ["N, G"]
    for arm in OURS:
        header += [f"{arm}: phase 1", "phase 2", "links"]
    header += ["gloo: rebuild", "links"]
    title = (
        "One of N seats replaced in G groups: median of stayers and trials (worst), all G together"
    )
    return [Table(title, tuple(header), rows), _growth(found)]


def _growth(found: Switchovers) -> Table:
    rows = []
    for arm in (*OURS, "gloo"):
        each = growths(found, arm)
        if each:
            rows.append((arm, ", ".join(f"{one:.2g}" for one in each)))
    return Table(
        "Most processes / fewest, for each number of groups measured in both",
        ("arm", "times"),
        rows,
    )


def _switched(found: Switchovers, case: Case) -> list[str]:
    trials = found.middle.get(case)
    if not trials:
        blank = [""] * (1 if case.arm == "gloo" else 2)
        return [found.left_out.get(case, ""), *blank]
    worst = max(trial.still_ms for trial in found.worst[case])
    still = statistics.median(trial.still_ms for trial in trials)
    cells = [pair_said(still * 1e3, worst * 1e3)]
    cells.append(str(max(trial.opened for trial in found.worst[case])))
    if case.arm != "gloo":
        background = statistics.median(trial.background_ms for trial in trials)
        cells.insert(0, said(background * 1e3))
    return cells


def of_aborts(aborts: Aborts) -> list[Table]:
    rows = []
    for kind in KINDS:
        for arm in (*ABORT_ARMS, SOCKET):
            values = aborts.last_ms(arm, kind)
            if values:
                middle = said(statistics.median(values) * 1e3)
                spread = [said(value * 1e3) for value in (min(values), max(values))]
                beyond = said_ms(aborts.beyond_ms(arm)) if (kind, arm) in BEYOND else ""
                rows.append((f"{kind}, {arm}", middle, *spread, beyond, str(len(values))))
    title = (
        "all_reduce of 1 MiB, 4 ranks, one killed or stopped: until the last survivor is out "
        "(gloo's own timeout is 3 s)"
    )
    return [Table(title, ("case", "median", "best", "worst", "after the kernel", "trials"), rows)]


BEYOND = [("killed", arm) for arm in ABORT_ARMS]


def said_ms(values: list[float]) -> str:
    """Their median, which may be below 0."""
    return f"{statistics.median(values):.3g} ms"


def _keys(cells: Iterable[Cell]) -> list[tuple[int, str, int]]:
    keys = ((one.ranks, one.operation, one.size_bytes) for one in cells if one != ALONE)
    return sorted(set(keys))


def _best_and_median(calls: Calls, cell: Cell) -> str:
    times = calls.times.get(cell)
    return _spent(times) if times else "not run"


def _spent(times: list[Spent]) -> str:
    each = [spent.median_us for spent in times]
    return pair_said(min(each), statistics.median(each))


def _ratio(calls: Calls, ours: Cell) -> str:
    theirs = calls.times.get(Cell("gloo", ours.ranks, ours.operation, ours.size_bytes))
    mine = calls.times.get(ours)
    if not theirs or not mine:
        return ""
    return f"{1 / best_ratio(mine, theirs):.3g} ({1 / ratio(mine, theirs):.3g})"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def of_scale(found: Scale) -> list[Table]:
    """Each case beside the one that it is measured by."""
    rows = []
    for case, spent in found.times.items():
        other = found.times.get(found.compared(case), [])
        if not other or case == found.compared(case):
            continue
        against = f"{median_said(spent)}", f"{median_said(other)}", f"{ratio(spent, other):.2g}"
        rows.append((case.said, *against))
    title = (
        "Many seats: median of the rounds; small sums beside all pairs, shared hosts beside none"
    )
    return [Table(title, ("case", "time", "compared with", "ratio"), rows)]


def median_said(rounds: list[Spent]) -> str:
    return said(statistics.median(one.median_us for one in rounds))
