# SPDX-License-Identifier: Apache-2.0
"""Findings of a check, as lines for people."""

import statistics
from typing import Any

RUN, STANDBY = "run", "standby"
_TITLES = {RUN: "in place", STANDBY: "standby"}
_SHOWN_MAX = 12


def is_equal(result: dict[str, Any]) -> bool:
    """Tell whether a process has computed the same numbers again: losses, tensors and chance."""
    again = result["losses"] == result["repeated"]
    wrong = ("error", "missing", "differences", "missed")
    return again and not any(result[name] for name in wrong)


def lines_of(ranks: list[dict[str, Any]]) -> list[str]:
    """Return the lines on rank 0, and on each other one that has shown something else.

    ranks  results of each rank by role
    """
    lines = _script_lines(ranks[0][RUN])
    for rank, found in enumerate(ranks):
        if rank and all(map(is_equal, found.values())):
            continue
        lines += [f"rank {rank}"] if len(ranks) > 1 else []
        for role, result in found.items():
            lines += _proof_lines(_TITLES[role], result)
    if len(ranks) > 1 and all(is_equal(one) for found in ranks for one in found.values()):
        lines.append(f"all {len(ranks)} ranks are equal")
    return lines


def _script_lines(run: dict[str, Any]) -> list[str]:
    loops = ", in ".join(f"{function}() line {line}" for function, line in reversed(run["loops"]))
    lines = [f"loop      {loops or 'none that could be rewritten has an update in it'}"]
    if run["objects"]:
        blocks = run["objects"].get("block", 0)
        count = sum(run["objects"].values()) - blocks
        memory = f"{blocks:,} blocks of memory with {run['memory_bytes']:,} bytes"
        lines.append(f"carried   {count:,} objects, {memory}")
        lines += _opaque_lines(run["opaque"], run["inert_count"])
        lines += _change_lines(run)
    return lines


def _opaque_lines(opaque: list[tuple[str, str]], inert: int) -> list[str]:
    others = f", and {inert} without state" if inert else ""
    if not opaque:
        return [f"opaque    nothing{others}"]
    width = max(len(path) for path, _ in opaque[:_SHOWN_MAX])
    shown = [f"          {path:<{width}}  {kind}" for path, kind in opaque[:_SHOWN_MAX]]
    hidden = len(opaque) - len(shown)
    rest = [f"          and {hidden} more"] if hidden > 0 else []
    title = f"opaque    {len(opaque)} objects, of which each process keeps its own{others}"
    return [title, *shown, *rest]


def _change_lines(run: dict[str, Any]) -> list[str]:
    if not run["changed"]:
        return []
    changed, took_us = (statistics.mean(run[name]) for name in ("changed", "look_us"))
    lines = [f"changes   {changed:.0f} objects a turn, found in {took_us / 1000:.1f} ms (mean)"]
    lines += [f"          not found: {path}: {old}, {new}" for path, old, new in run["missed"]]
    return lines


def _proof_lines(title: str, result: dict[str, Any]) -> list[str]:
    if result["error"]:
        return [f"{title:<10}the script raised {result['error']}"]
    if result["missing"]:
        return [f"{title:<10}the script ended before there was {result['missing']}"]
    losses, repeated = result["losses"], result["repeated"]
    differing = [
        n for n, pair in enumerate(zip(losses, repeated, strict=False)) if len({*pair}) > 1
    ]
    if differing or len(losses) != len(repeated):
        first = differing[0] if differing else min(len(losses), len(repeated))
        lines = [f"{title:<10}the losses differ, from number {first + 1} of {len(losses)} on"]
    else:
        all_equal = not (result["differences"] or result["values"])
        values = "and every value equal" if all_equal else "but not every value"
        lines = [f"{title:<10}{len(losses)} losses again, all equal, {values}"]
    lines += [
        f"          {path}: {first} at first, {second} again"
        for path, first, second in [*result["differences"], *result["values"]][:_SHOWN_MAX]
    ]
    return lines + [f"          {note}" for note in result["notes"][:_SHOWN_MAX]]
