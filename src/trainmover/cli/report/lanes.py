# SPDX-License-Identifier: Apache-2.0
"""A timeline as a picture: a row for every lane, in milliseconds. Pure."""

from collections.abc import Iterator

from trainmover.cli.report import svg
from trainmover.cli.report.chrome import lanes, place
from trainmover.cli.report.timeline import CONTROLLER, ORDERS, Span, Timeline, Track

WIDTH, ROW, GAP, HEAD = 1100, 20, 14, 12
LEFT = 150
NAMED_MIN = 6.6
"""Pixels that a letter takes: a name is shown where it has room."""
COLOURS = {
    "detect": "k1", "drain": "k6", "verdict": "k2", "bind": "k4", "prepare": "k7", "pause": "k2",
    "state": "k5", "switchover": "k0", "first step": "k3", "active": "k9", "warm": "k9",
    "bound": "k8", "leaving": "k8", "warming": "k8", "holding": "k8", "starting": "k8",
    "warm up": "k8", "warm up to a first step": "k8", "leave": "k8", "start process": "k8",
}  # fmt: skip


def drawing(line: Timeline) -> str:
    """Orders as arrows from the controller to the end of what was done on them."""
    placed = lanes(line.spans)
    rows = list(_rows(placed))
    places = {(track, number): y for track, number, y in rows}
    height = round(rows[-1][2] if rows else 0) + ROW + 66
    frame = svg.Frame(WIDTH, height, (0.0, _ms(line, line.end_us) or 1.0), (0.0, 1.0))
    parts = [*_axis(frame, height), *_names(rows), *_machines(rows)]
    for track, of in placed.items():
        for number, row in enumerate(of):
            for span in row:
                parts += _bar(frame, line, span, places[track, number])
    for moment in line.moments:
        if (y := places.get((moment.track, 0))) is not None and moment.track.lane != ORDERS:
            at = _x(frame, _ms(line, moment.at_us))
            parts.append(svg.element("circle", f"<title>{svg.safe(moment.name)}</title>",
                                     cx=at, cy=y + ROW / 2, r=4, class_="k1"))  # fmt: skip
    parts += _arrows(frame, line, placed, places)
    parts += _legend(line, height)
    return svg.picture(WIDTH, height, parts, says=f"run {line.job.spec.run_id}", alone=True)


def _ms(line: Timeline, at_us: int) -> float:
    return (at_us - line.begun_us) / 1e3


def _x(frame: svg.Frame, ms: float) -> float:
    return LEFT + ms / frame.x[1] * (WIDTH - LEFT - 20)


def _rows(placed: dict[Track, list[list[Span]]]) -> Iterator[tuple[Track, int, float]]:
    """Yield each lane's place; the controller first."""
    y, before = float(HEAD), ""
    for track in sorted(placed, key=lambda one: (one.process != CONTROLLER, *place(one))):
        if before and before != track.process:
            y += GAP
        before = track.process
        for number in range(len(placed[track])):
            yield track, number, y
            y += ROW + 2


def _axis(frame: svg.Frame, height: int) -> Iterator[str]:
    for value in svg.ticks(0, frame.x[1], 10):
        x = _x(frame, value)
        yield svg.element("line", x1=x, x2=x, y1=4, y2=height - 52, class_="axis")
        yield svg.text(x, height - 36, f"{value:g} ms", anchor="middle")


def _names(rows: list[tuple[Track, int, float]]) -> Iterator[str]:
    for track, number, y in rows:
        if number == 0:
            name = "steps" if track.lane.startswith("steps of worker") else track.lane
            yield svg.text(LEFT - 8, y + 14, name, anchor="end")


def _machines(rows: list[tuple[Track, int, float]]) -> Iterator[str]:
    first: dict[str, float] = {}
    for track, _, y in rows:
        first.setdefault(track.process, y)
    for name, y in first.items():
        yield svg.text(4, y + 14, name, of="title")


def _bar(frame: svg.Frame, line: Timeline, span: Span, y: float) -> Iterator[str]:
    x, end = (_x(frame, _ms(line, at)) for at in (span.from_us, span.to_us))
    ms = (span.to_us - span.from_us) / 1e3
    inside = f"<title>{svg.safe(span.name)} {ms:.1f} ms</title>"
    step = span.track.lane.startswith("steps of ")
    colour = "k9" if step or span.track.lane == ORDERS else COLOURS.get(span.name, "k9")
    wide = max(end - x, 1.0)
    yield svg.element("rect", inside, x=x, y=y, width=wide, height=ROW, class_=colour, rx=2)
    if span.track.lane != ORDERS and len(span.name) * NAMED_MIN < wide - 4:
        yield svg.text(x + 4, y + 14, span.name, of="on" if colour not in ("k9",) else "title")


def _legend(line: Timeline, height: int) -> Iterator[str]:
    """Explain the colours of bars that are too short for a name."""
    x = float(LEFT)
    for name in [name for name in COLOURS if any(span.name == name for span in line.spans)]:
        if COLOURS[name] in ("k8", "k9"):
            continue
        yield svg.element("rect", x=x, y=height - 20, width=11, height=11, class_=COLOURS[name])
        yield svg.text(x + 16, height - 10, name)
        x += 16 + len(name) * NAMED_MIN + 18


def _arrows(
    frame: svg.Frame,
    line: Timeline,
    placed: dict[Track, list[list[Span]]],
    places: dict[tuple[Track, int], float],
) -> Iterator[str]:
    orders = places.get((Track(CONTROLLER, ORDERS), 0))
    if orders is None:
        return
    rows = {
        (track, span.from_us, span.to_us): number
        for track, of in placed.items()
        for number, row in enumerate(of)
        for span in row
    }
    for flow in line.flows:
        number = rows.get((flow.track, flow.from_us, flow.to_us))
        if number is not None:
            x = _x(frame, _ms(line, flow.from_us))
            to = places[flow.track, number]
            yield svg.element("line", x1=x, x2=x, y1=orders + ROW, y2=to, class_="arrow tick k8")
