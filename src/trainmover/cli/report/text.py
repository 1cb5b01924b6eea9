# SPDX-License-Identifier: Apache-2.0
"""A report for people who read a terminal, and for programs. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from trainmover.cli.report.goodput import Goodput, percentile

PERCENTILES = (0.5, 0.9, 0.99, 1.0)
_NAMES = ("p50", "p90", "p99", "most")
MOVES_SHOWN = 20


def lasting(seconds: float) -> str:
    """Return a time as people say it.

    >>> [lasting(s) for s in (0.0861, 3.2, 75, 3725, 200000)]
    ['86 ms', '3.2 s', '1 min 15 s', '1 h 02 min', '2 d 08 h']
    """
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return "{} d {:02d} h".format(*divmod(round(seconds / 3600), 24))


def percent(share: float | None) -> str:
    """Never 100 % if anything was lost.

    >>> percent(0.98765), percent(0.99999), percent(1.0), percent(None)
    ('98.8 %', '99.9 %', '100.0 %', '-')
    """
    if share is None:
        return "-"
    return f"{min(share, 0.9994) if share < 1 else 1.0:.1%}".replace("%", " %")


def headline(account: Goodput) -> str:
    """Return one line: what a run says of itself when it ends."""
    count = len(account.incidents)
    said = [
        f"goodput {percent(account.share)}: {account.steps} steps in {lasting(account.whole_s)}",
        f"{count} incident{'s' * (count != 1)}" if count else "no incident",
    ]
    if down := account.downtimes_ms():
        worst = "" if len(down) == 1 else f" in the median, {lasting(down[-1] / 1e3)} at most"
        said.append(f"downtime {lasting((percentile(down, 0.5) or 0.0) / 1e3)}{worst}")
    if account.redone:
        said.append(f"{account.redone} steps made again")
    if account.unequal:
        said.append(f"NOT PROVED EQUAL behind {account.unequal} of them")
    return ", ".join(said)


def lines(account: Goodput) -> Iterator[str]:
    """Yield all of the report."""
    yield _title(account)
    yield f"goodput {percent(account.share)} of {lasting(account.whole_s)} was training"
    width = max(map(len, account.parts))
    for name, seconds in account.parts.items():
        share = seconds / account.whole_s if account.whole_s else 0.0
        yield f"  {name:<{width}}  {lasting(seconds):>12}  {share:7.2%}".replace("%", " %")
    yield _steps(account)
    yield _incidents(account)
    if account.downtimes_ms():
        yield f"  {'downtime':<10}{'count':>6}" + "".join(f"{name:>12}" for name in _NAMES)
        for kind in ("move", "recovery"):
            if down := account.downtimes_ms(kind):
                shown = (lasting((percentile(down, p) or 0.0) / 1e3) for p in PERCENTILES)
                yield f"  {kind:<10}{len(down):>6}" + "".join(f"{text:>12}" for text in shown)
    yield from _moves(account)


def _title(account: Goodput) -> str:
    count = len(account.runs)
    of = f"run {account.runs[-1]}" + (f" and {count - 1} before it" if count > 1 else "")
    return f"{of}: {sizes(account)}, {state(account)}"


def sizes(account: Goodput) -> str:
    """Return how big the job is."""
    machines, ranks = account.machines, account.ranks
    return f"{machines} machine{'s' * (machines > 1)}, {ranks} rank{'s' * (ranks > 1)}"


def state(account: Goodput) -> str:
    """Return whether the job is over, and how."""
    if not account.over:
        return "not ended"
    return "ended well" if account.code == 0 else f"ended with status {account.code}"


def _steps(account: Goodput) -> str:
    usual = "" if account.step_ms is None else f", {account.step_ms:.0f} ms each"
    lost = account.missing or "none"
    return f"steps {account.steps}{usual}: {lost} lost, {account.redone} made again"


def _incidents(account: Goodput) -> str:
    if not account.incidents:
        return "incidents none"
    causes: dict[str, int] = {}
    for one in account.incidents:
        causes[one.cause] = causes.get(one.cause, 0) + 1
    told = ", ".join(f"{count} {name}" for name, count in sorted(causes.items()))
    return f"incidents {len(account.incidents)}: {told}"


def _moves(account: Goodput) -> Iterator[str]:
    if not account.moves:
        return
    helped = sum(move.helped for move in account.moves)
    yield f"moves that made steps faster {helped} of {len(account.moves)}"
    best = sorted((move for move in account.moves if move.helped), key=lambda move: -move.saved_s)
    for move in best[:MOVES_SHOWN]:
        speed = f"{move.before_ms:.0f} -> {move.after_ms:.0f} ms a step"
        saved = f", saved {lasting(move.saved_s)}" if move.saved_s > 0 else ""
        who = f"#{move.number} {move.machine} -> {move.joiner}"
        yield f"  {who} after step {move.step}: {speed}{saved}"


def as_json(account: Goodput) -> dict[str, Any]:
    """Return the account for programs."""
    return {
        "runs": account.runs,
        "machines": account.machines,
        "ranks": account.ranks,
        "over": account.over,
        "code": account.code,
        "whole_s": account.whole_s,
        "goodput": account.share,
        "seconds": account.parts,
        "lost_s": account.lost_s,
        "steps": account.steps,
        "step": account.step,
        "step_ms": account.step_ms,
        "steps_lost": account.missing,
        "steps_made_again": account.redone,
        "incidents_not_proved_equal": account.unequal,
        "downtime_ms": {
            kind or "all": _percentiles(account.downtimes_ms(kind))
            for kind in ("", "move", "recovery")
        },
        "incidents": [asdict(one) for one in account.incidents],
        "moves": [asdict(one) | {"helped": one.helped} for one in account.moves],
    }


def _percentiles(down: Sequence[float]) -> dict[str, float | int | None]:
    named = {name: percentile(down, share) for name, share in zip(_NAMES, PERCENTILES, strict=True)}
    return {"count": len(down), **named}
