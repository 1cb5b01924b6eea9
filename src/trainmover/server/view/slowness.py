# SPDX-License-Identifier: Apache-2.0
"""Machines that are slower than others, or seem about to fail, and what was done about them: for
people. Pure."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from trainmover.controller.policies.stragglers.answer import outcome_text
from trainmover.controller.policies.stragglers.known import Finding, SlowMove
from trainmover.controller.state import Job

_BARS = "▁▂▃▄▅▆▇█"


def stragglers_json(job: Job) -> dict[str, Any]:
    """Of `trainmover status`."""
    known = job.stragglers
    return {
        "policy": job.spec.stragglers,
        "findings": [_finding(one) for one in known.findings],
        "moves": [_move(one) for one in known.moves],
    }


def anomalies_json(job: Job) -> dict[str, Any]:
    """Of `trainmover status`."""
    found = [dataclasses.asdict(one) for one in job.anomalies.findings]
    return {"policy": job.spec.anomalies, "findings": found}


def _finding(one: Finding) -> dict[str, Any]:
    return {**msgspec.structs.asdict(one.found), "done": one.done}


def _move(move: SlowMove) -> dict[str, Any]:
    return {
        "slot": move.slot,
        "leaver": move.leaver,
        "joiner": move.joiner,
        "incident": move.incident,
        "own_ms": move.own_ms,
        "usual_ms": move.usual_ms,
        "effect": str(move.effect),
        "own_after_ms": move.own_after_ms,
        "usual_after_ms": move.usual_after_ms,
        "repaid_steps": move.repaid_steps,
        "text": outcome_text(move),
    }


def plot(values: Sequence[float]) -> str:
    """A bar for each, from 0 up.

    >>> plot([100, 100, 200]), plot([])
    ('▅▅█', '')
    """
    most = max(values, default=0.0)
    return "".join(_BARS[min(int(8 * one / most), 7)] for one in values) if most > 0 else ""
