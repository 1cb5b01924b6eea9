# SPDX-License-Identifier: Apache-2.0
"""How far a run is and how long it will yet take, as one line. Pure."""

from trainmover.cli.report.text import lasting

BAR = 24
LEAST_BAR = 72
"""Columns from which on there is room for a bar."""


def left_s(step: int, length: int | None, step_ms: float | None) -> float | None:
    """At the present speed; None if the length is not known, or was not true."""
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
) -> str:
    """columns: what it must fit in, with a bar if there is room; 0: no bar.

    >>> line(50, 200, 2.5, 100.0)
    'step 50 of 200 (25 %)  loss 2.5  100 ms/step  15.0 s left'
    >>> line(50, None, None, None, "recovering", 20)
    'step 50  recovering'
    """
    done = share(step, length)
    at = f"step {step}"
    if done is not None:
        at = f"step {step} of {length} ({int(done * 100)} %)"
        if columns >= LEAST_BAR:
            at = f"{bar(done)} {at}"
    said = [at]
    said += [f"loss {loss:.6g}"] if loss is not None else []
    said += [f"{step_ms:.0f} ms/step"] if step_ms is not None else []
    left = left_s(step, length, step_ms)
    if doing:
        said.append(doing)
    elif left is not None:
        said.append(f"{lasting(left)} left")
    text = "  ".join(said)
    return text[: columns - 1] if columns else text
