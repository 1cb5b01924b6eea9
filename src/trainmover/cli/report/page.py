# SPDX-License-Identifier: Apache-2.0
"""A report as one HTML file with its plots in it: nothing is loaded, no script runs. Pure."""

import statistics
from collections.abc import Iterable, Iterator
from html import escape

from trainmover.cli.report import svg
from trainmover.cli.report.goodput import Disturbance, Goodput, percentile
from trainmover.cli.report.text import (
    PERCENTILES,
    headline,
    lasting,
    percent,
    sizes,
    state,
)
from trainmover.controller.state import Trigger

WIDTH = 920
FIRST_ROWS = 50
_PARTS: dict[str, str] = {
    "training": "k0",
    **dict.fromkeys(map(str, Trigger), "k3"),
    Trigger.LOST: "k1",
    Trigger.ENDED: "k2",
    Trigger.STANDBY: "k2",
    Trigger.STUCK: "k4",
    Trigger.LINK: "k5",
    Trigger.CORRUPTION: "k7",
    Trigger.DAMAGED: "k7",
    Trigger.STORE: "k6",
    Trigger.RAISED: "k6",
    "steps made again": "k6",
    "starting": "k8",
    "ending": "k9",
    "not running": "k9",
}
_STYLE = (
    svg.STYLE
    + """
body { margin: 2rem auto; max-width: 920px; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
p, caption, .pale { color: var(--pale); } .big { font-size: 2.6rem; color: var(--ink); }
.tiles { display: flex; flex-wrap: wrap; gap: 2.4rem; } .tiles span { display: block; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; list-style: none; }
.legend svg { display: inline-block; vertical-align: -1px; margin-right: .4rem; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
"""
)


def page(account: Goodput, made: str) -> str:
    """made: by what and when, for the foot of the page."""
    inside = "\n".join(
        part
        for section in (_head, _time, _progress, _downtime, _phases, _moves, _list)
        for part in section(account)
    )
    title = f"trainmover report: {escape(account.runs[-1])}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" '
        f'content="light dark"><title>{title}</title><style>{_STYLE}</style></head>\n'
        f"<body>\n{inside}\n<p>{escape(made)}</p>\n</body></html>\n"
    )


def colour_of(part: str) -> str:
    return _PARTS.get(part, "k8")


def _head(account: Goodput) -> Iterator[str]:
    yield f"<h1>{escape(', '.join(account.runs[-3:]))}</h1>"
    yield f"<p>{sizes(account)}, {escape(state(account))}. "
    yield f"{escape(headline(account))}.</p>"
    down = account.downtimes_ms()
    middle = "-" if not down else lasting((percentile(down, 0.5) or 0.0) / 1e3)
    tiles = [
        ("goodput", percent(account.share)),
        ("steps", f"{account.steps:,}".replace(",", " ")),
        ("steps lost", str(account.missing)),
        ("made again", str(account.redone)),
        ("incidents", str(len(account.incidents))),
        ("downtime, median", middle),
    ]
    yield '<div class="tiles">'
    for name, value in tiles:
        yield f'<div><span class="big">{value}</span><span class="pale">{name}</span></div>'
    yield "</div>"


def _time(account: Goodput) -> Iterator[str]:
    yield "<h2>Where the time went</h2>"
    whole = account.whole_s or 1.0
    parts = [(name, seconds / whole, colour_of(name)) for name, seconds in account.parts.items()]
    yield svg.picture(WIDTH, 26, svg.strip(parts, WIDTH), says="time by what it went to")
    yield _legend(
        (colour, f"{name} {lasting(account.parts[name])}, {percent(share)}")
        for name, share, colour in parts
    )


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    items = "".join(
        '<li><svg width="10" height="10" role="presentation">'
        f'<rect width="10" height="10" class="{colour}"/></svg>{escape(words)}</li>'
        for colour, words in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _progress(account: Goodput) -> Iterator[str]:
    if len(account.progress) < 2:
        return
    yield "<h2>Committed steps over time</h2>"
    end_s = account.whole_s or 1.0
    most = max(step for _, step in account.progress)
    frame = svg.Frame(WIDTH, 260, (0.0, end_s), (0.0, float(most) or 1.0))
    parts = [
        *frame.axes(_time_ticks(end_s), [(y, f"{y:g}") for y in svg.ticks(0, most)], "since start"),
        *(svg.mark(frame, one.at_s, colour_of(one.cause)) for one in account.incidents),
        svg.line(frame, [(t, float(step)) for t, step in account.progress], "k0"),
    ]
    yield svg.picture(WIDTH, 260, parts, says="committed steps over time; a tick for each incident")
    yield _causes(account)


def _causes(account: Goodput) -> str:
    found = dict.fromkeys(one.cause for one in account.incidents)
    return _legend((colour_of(cause), cause) for cause in found)


def _time_ticks(end_s: float) -> list[tuple[float, str]]:
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    unit, name = next((u, n) for u, n in units if end_s > 3 * u or u == 1)
    return [(t * unit, f"{t:g} {name}") for t in svg.ticks(0, end_s / unit)]


def _downtime(account: Goodput) -> Iterator[str]:
    known = [one for one in account.incidents if one.downtime_ms is not None]
    if not known:
        return
    yield "<h2>Downtime</h2><p>From the last commit before to the first one after, less the time "
    yield "that a step takes. A dot is an incident.</p>"
    values = [max(one.downtime_ms or 0.0, 1.0) for one in known]
    levels = svg.decades(min(values), max(values))
    named = [(ms, lasting(ms / 1e3)) for ms in levels]
    frame = svg.Frame(WIDTH, 260, (0.0, account.whole_s or 1.0), (levels[0], levels[-1]), log=True)
    parts = [*frame.axes(_time_ticks(account.whole_s), named, "since start")]
    parts += [
        svg.dot(frame, one.at_s, value, colour_of(one.cause), _one_line(one))
        for one, value in zip(known, values, strict=True)
    ]
    yield svg.picture(WIDTH, 260, parts, says="downtime of each incident over time")
    if len(known) > 4:
        yield _shares(account, levels, named)
        yield _legend([("k3", "planned moves"), ("k1", "recoveries")])
    yield _percentiles(account)


def _shares(account: Goodput, levels: list[float], named: list[tuple[float, str]]) -> str:
    """Plot how many were over within so long."""
    flat = svg.Frame(WIDTH, 220, (0.0, 1.0), (levels[0], levels[-1]), log=True)
    parts = [
        *flat.axes(
            [(x / 10, f"{x * 10} %") for x in range(0, 11, 2)], named, "of incidents are shorter"
        )
    ]
    for kind, colour in (("move", "k3"), ("recovery", "k1")):
        down = account.downtimes_ms(kind)
        points = [((at + 1) / len(down), max(ms, 1.0)) for at, ms in enumerate(down)]
        if points:
            parts.append(svg.line(flat, [(0.0, points[0][1]), *points], colour))
    return svg.picture(WIDTH, 220, parts, says="share of incidents by downtime")


def _percentiles(account: Goodput) -> str:
    rows = []
    for kind, name in (("move", "planned moves"), ("recovery", "recoveries"), ("", "all")):
        if down := account.downtimes_ms(kind):
            shown = [lasting((percentile(down, share) or 0.0) / 1e3) for share in PERCENTILES]
            rows.append([name, str(len(down)), *shown])
    return _table(["", "count", "median", "9 of 10", "99 of 100", "longest"], rows, numbers=1)


def _phases(account: Goodput) -> Iterator[str]:
    """Plot how long each phase takes, in the median."""
    rows = []
    for kind, name in (("move", "planned move"), ("recovery", "recovery")):
        took: dict[str, list[float]] = {}
        for one in account.incidents:
            if one.kind == kind and one.outcome == "done":
                for phase, ms in one.phases_ms.items():
                    took.setdefault(phase, []).append(ms)
        for phase, values in took.items():
            median, most = statistics.median(values), max(values)
            told = (phase.replace("_", " "), lasting(median / 1e3), lasting(most / 1e3))
            rows.append([name, *told, str(len(values))])
    if rows:
        yield "<h2>Phases</h2>"
        yield _table(["", "phase", "median", "longest", "count"], rows, numbers=2)


def _moves(account: Goodput) -> Iterator[str]:
    if not account.moves:
        return
    helped = sum(one.helped for one in account.moves)
    yield f"<h2>Moves</h2><p>{helped} of {len(account.moves)} planned moves made steps faster.</p>"
    rows = [
        [
            f"#{one.number} {one.machine} → {one.joiner}",
            str(one.step),
            f"{one.before_ms:.1f} ms",
            f"{one.after_ms:.1f} ms",
            lasting(one.saved_s) if one.saved_s > 0 else "-",
        ]
        for one in sorted(account.moves, key=lambda one: -one.saved_s)[:FIRST_ROWS]
    ]
    yield _table(["", "after step", "a step before", "after", "saved"], rows, numbers=1)


def _list(account: Goodput) -> Iterator[str]:
    if not account.incidents:
        return
    several = len(account.incidents) > FIRST_ROWS
    worst = sorted(account.incidents, key=lambda one: -(one.downtime_ms or 0.0))
    yield f"<h2>{'The longest incidents' if several else 'Incidents'}</h2>"
    yield _incident_table(worst[:FIRST_ROWS] if several else account.incidents)
    if several:
        yield f"<details><summary>All {len(account.incidents)}</summary>"
        yield _incident_table(account.incidents)
        yield "</details>"


def _incident_table(incidents: Iterable[Disturbance]) -> str:
    rows = [
        [
            f"#{one.number}",
            lasting(one.at_s),
            "-" if one.step is None else str(one.step),
            "-" if one.downtime_ms is None else lasting(one.downtime_ms / 1e3),
            str(one.redone or "-"),
            f"{one.kind} {one.machine or '-'} → {one.joiner or '-'}, {one.outcome}",
            one.text,
        ]
        for one in incidents
    ]
    return _table(
        ["", "at", "step", "downtime", "made again", "what", "why"], rows, numbers=1, to=5
    )


def _one_line(one: Disturbance) -> str:
    down = "" if one.downtime_ms is None else f", {lasting(one.downtime_ms / 1e3)}"
    return f"#{one.number} {one.cause}{down}: {one.text}"


def _table(head: list[str], rows: list[list[str]], *, numbers: int, to: int = 99) -> str:
    """Columns from `numbers` up to `to` are aligned as such."""

    def cells(tag: str, row: list[str]) -> str:
        of = (' class="n"' if numbers <= at < to else "" for at in range(len(row)))
        return "".join(f"<{tag}{c}>{escape(cell)}</{tag}>" for c, cell in zip(of, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"
