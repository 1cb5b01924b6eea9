# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG, of our own making: no script, and colours from the page around them. Pure.

A colour is a class, `k0` to `k9`; `STYLE` has them in light and dark.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
:root { --ink: #1d2433; --pale: #6b7385; --line: #d9dde5; --paper: #ffffff;
  --k0: #1f6f54; --k1: #c8413b; --k2: #f2a541; --k3: #1f4e8c; --k4: #8a5fb3; --k5: #2f9ac4;
  --k6: #a8763e; --k7: #d2649a; --k8: #8b93a3; --k9: #c9ced8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9f0; --pale: #9aa3b5; --line: #39404f;
  --paper: #161a22; --k0: #4fb38e; --k1: #ef6f69; --k2: #f5b85f; --k3: #6fa3e8; --k4: #b48ede;
  --k5: #62c3ea; --k6: #cf9c62; --k7: #ec8fbd; --k8: #7c8496; --k9: #4b5262; } }
svg { max-width: 100%; height: auto; display: block; font: 12px system-ui, sans-serif; }
svg text { fill: var(--pale); } svg .axis { stroke: var(--line); } svg .title { fill: var(--ink); }
svg .line { fill: none; stroke-width: 1.8; } svg text.on { fill: var(--paper); }
svg .arrow { stroke-width: 1; stroke-dasharray: 2 3; }
""" + "".join(
    f".k{n} {{ fill: var(--k{n}); }} .line.k{n}, .tick.k{n} {{ stroke: var(--k{n}); }}\n"
    for n in range(10)
)
COLOURS = 10
LEFT, RIGHT, TOP, BELOW = 62, 24, 10, 34


def element(name: str, inside: str = "", **attributes: object) -> str:
    """`class_` and `text_anchor` are written as `class` and `text-anchor`; numbers to a tenth.

    >>> element("rect", x=1.25, width=3, class_="k0")
    '<rect x="1.2" width="3" class="k0"/>'
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{said}>{inside}</{name}>" if inside else f"<{name}{said}/>"


def _short(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def safe(words: str) -> str:
    return escape(words)


def text(x: float, y: float, words: str, *, anchor: str = "start", of: str = "") -> str:
    return element("text", escape(words), x=x, y=y, text_anchor=anchor, class_=of or "label")


def picture(
    width: int, height: int, parts: Iterable[str], *, says: str, alone: bool = False
) -> str:
    """says: for who cannot see it. alone: a file of its own, which brings its colours."""
    style = f"<style>{STYLE}</style>" + element(
        "rect", width=width, height=height, style="fill:var(--paper)"
    )
    inside = f"<title>{escape(says)}</title>{style * alone}{''.join(parts)}"
    space = {"xmlns": "http://www.w3.org/2000/svg"}
    size = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    return element("svg", inside, **space, **size, role="img")


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers between the two.

    >>> ticks(0, 97)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * round_ for round_ in (1, 2, 5, 10) if power * round_ >= raw)
    first = math.ceil(low / step)
    return [round(step * n, 10) for n in range(first, math.floor(high / step) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten around the two.

    >>> decades(3, 450)
    [1.0, 10.0, 100.0, 1000.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


@dataclass(frozen=True)
class Frame:
    """A plot's area, and what its axes go from and to. log: the upright one."""

    width: int
    height: int
    x: tuple[float, float]
    y: tuple[float, float]
    log: bool = False

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Place in the picture."""
        low, high = self.y
        if self.log:
            low, high, y = math.log10(low), math.log10(high), math.log10(max(y, low))
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1.0)
        up = (y - low) / ((high - low) or 1.0)
        inner_w, inner_h = self.width - LEFT - RIGHT, self.height - TOP - BELOW
        return LEFT + across * inner_w, TOP + (1 - up) * inner_h

    def axes(
        self,
        x_ticks: Iterable[tuple[float, str]],
        y_ticks: Iterable[tuple[float, str]],
        says: str,
    ) -> Iterator[str]:
        """Lines across at each tick of the upright axis; says: what lies on the other."""
        right, floor = self.width - RIGHT, self.height - BELOW
        for value, name in y_ticks:
            y = self.at(self.x[0], value)[1]
            yield element("line", x1=LEFT, x2=right, y1=y, y2=y, class_="axis")
            yield text(LEFT - 8, y + 4, name, anchor="end")
        for value, name in x_ticks:
            yield text(self.at(value, self.y[0])[0], floor + 16, name, anchor="middle")
        yield text(right, floor + 31, says, anchor="end")


def line(frame: Frame, points: Sequence[tuple[float, float]], colour: str) -> str:
    places = " ".join("{:.1f},{:.1f}".format(*frame.at(*point)) for point in points)
    return element("polyline", points=places, class_=f"line {colour}")


def dot(frame: Frame, x: float, y: float, colour: str, says: str, radius: float = 3.2) -> str:
    cx, cy = frame.at(x, y)
    inside = f"<title>{escape(says)}</title>"
    return element("circle", inside, cx=cx, cy=cy, r=radius, class_=colour, fill_opacity=0.8)


def mark(frame: Frame, x: float, colour: str) -> str:
    """Draw a short line at the floor."""
    at, floor = frame.at(x, frame.y[0])
    return element("line", x1=at, x2=at, y1=floor - 12, y2=floor, class_=f"tick {colour}")


def strip(parts: Sequence[tuple[str, float, str]], width: int, height: int = 26) -> Iterator[str]:
    """Draw one bar, cut into parts: name, share, colour."""
    at = 0.0
    for name, share, colour in parts:
        wide = share * width
        yield element(
            "rect", f"<title>{escape(name)}</title>", x=at, y=0, width=max(wide, 0.6),
            height=height, class_=colour,
        )  # fmt: skip
        at += wide
