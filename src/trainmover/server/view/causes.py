# SPDX-License-Identifier: Apache-2.0
"""Reason for a change of membership, in a word or two. Pure."""

from trainmover.controller.state import Incident, Trigger


def cause_of(incident: Incident) -> str:
    """Return the reason; "" if none, as of going on from a checkpoint."""
    return str(incident.trigger or "other") if incident.trigger is not Trigger.RESUMED else ""
