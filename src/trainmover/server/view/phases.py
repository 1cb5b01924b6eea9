# SPDX-License-Identifier: Apache-2.0
"""Phases of an incident, so that they add up to its downtime. Pure.

Ranks train on while a move binds and prepares: those phases are no part of its pause. Of the others
the ranks' own steps are a part, which are no downtime: the step before the pause, and the first one
after it. What is left of a loss before it was noticed was measured by no phase.
"""

from collections.abc import Mapping

from trainmover.controller.state import Incident, Kind

_BEFORE = ("bind", "prepare")


def phases_before(incident: Incident) -> dict[str, float]:
    """Return the phases in which ranks train on."""
    if incident.kind is not Kind.MOVE:
        return {}
    return {name: ms for name, ms in incident.phases_ms.items() if name in _BEFORE}


def phases_of_pause(incident: Incident) -> dict[str, float]:
    """Return the phases in which ranks stand, or make the steps around it."""
    before = phases_before(incident)
    return {name: ms for name, ms in incident.phases_ms.items() if name not in before}


def sum_text(parts: Mapping[str, float], whole_ms: float | None) -> str:
    """Return phases as a sum; what is printed adds up.

    >>> sum_text({"pause": 36.2, "state": 30.0, "first_step": 130.4}, 86.0)
    'pause 36 + state 30 + first_step 130 - training 110'
    >>> sum_text({"detect": 3.0, "drain": 11.0}, 20.0)
    'detect 3 + drain 11 + unnoticed 6'
    """
    shown = " + ".join(f"{name} {ms:.0f}" for name, ms in parts.items())
    if whole_ms is None or not parts:
        return shown
    more = sum(round(ms) for ms in parts.values()) - round(whole_ms)
    if more > 0:
        return f"{shown} - training {more}"
    return f"{shown} + unnoticed {-more}" if more else shown


def phases_text(incident: Incident) -> str:
    """Return all phases of an incident in brackets; "" if there are none."""
    said = []
    if during := phases_of_pause(incident):
        said.append(f"{sum_text(during, incident.downtime_ms)} ms")
    if before := phases_before(incident):
        said.append(f"before it {sum_text(before, None)} ms")
    return f" ({'; '.join(said)})" if said else ""
