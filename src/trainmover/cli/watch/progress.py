# SPDX-License-Identifier: Apache-2.0
"""Progress of a run and the time that it has left, as one line. Pure."""

from collections.abc import Iterator

from trainmover.cli.report.text import lasting

BAR = 24


def left_s(step: int, length: int | None, step_ms: float | None) -> float | None:
    """Return the time left at the present speed; None if the length is not known, or was not
    true."""
    if length is None or step_ms is None or step > length:
        return None
    return (length - step) * step_ms / 1e3


def share(step: int, length: int | None) -> float | None:
    return None if not length or step > length else step / length


def bar(done: float, width: int = BAR) -> str:
    """
    >>> bar(0.5, 8)
    '━━━━────'
    """
    full = round(done * width)
    return "━" * full + "─" * (width - full)


def line(
    step: int,
    length: int | None,
    loss: float | None,
    step_ms: float | None,
    doing: str = "",
    columns: int = 0,
    *,
    alarm: str = "",
) -> str:
    """columns: what it must fit in, with a bar if there is room; 0: no bar. What the job does, or
    the time left, is left out last; alarm: shown after it.

    >>> line(50, 200, 2.5, 100.0)
    'step 50 of 200 (25 %)  loss 2.5  100 ms/step  15.0 s left'
    >>> line(50, 200, 2.5, 100.0, columns=40)
    'step 50 of 200 (25 %)  15.0 s left'
    >>> line(50, None, None, None, "recovering", 20)
    'step 50  recovering'
    """
    done = share(step, length)
    left = left_s(step, length, step_ms)
    at = [f"step {step}"]
    if done is not None:
        at += [f"step {step} of {length}", f"step {step} of {length} ({int(done * 100)} %)"]
    figures = [f"loss {loss:.6g}"] if loss is not None else []
    figures += [f"{step_ms:.0f} ms/step"] if step_ms is not None else []
    end = [doing or ("" if left is None else f"{lasting(left)} left"), alarm]
    if not columns:
        return _joined(at[-1], *figures, *end)
    drawn = [] if done is None else [_joined(f"{bar(done)} {at[-1]}", *figures, *end)]
    fitting = (one for one in (*drawn, *_shorter(at, figures, end)) if len(one) < columns)
    return next(fitting, _joined(*end)[: columns - 1])


def _shorter(at: list[str], figures: list[str], end: list[str]) -> Iterator[str]:
    """Yield the line with less and less in it."""
    for first in range(len(figures) + 1):
        yield _joined(at[-1], *figures[first:], *end)
    for place in reversed(at[:-1]):
        yield _joined(place, *end)
    yield _joined(*end) or at[0]


def _joined(*parts: str) -> str:
    return "  ".join(filter(None, parts))
