# SPDX-License-Identifier: Apache-2.0
"""Why members have changed, in a word or two. Pure.

A move says so as a value. Of a recovery it is read from what was told of the process or machine.
"""

import re

from trainmover.controller.state import Incident

RESUMED = "the job goes on after step "
_CAUSES = {
    name: re.compile(text)
    for name, text in {
        "worker ended": r"worker \d+ of ",
        "rank stuck": r"all ranks stood still|rank \d+ on \S+ (stood still|did not )",
        "script raised": r"rank \d+ on \S+ raised ",
        "silent corruption": r"rank \d+ differs from its replicas|.* its replicas have parted",
        "standby failed": r"\S+ (cannot take the ranks|must start again): ",
        "store lost": "the key-value store ",
        "state damaged": r"rank \d+ cannot go back to step ",
        "link broken": r"rank \d+ lost a link",
        "machine lost": ".* (was|were) lost: ",
    }.items()
}


def cause_of(incident: Incident) -> str:
    """In a word or two; "" for what is none, as going on from a checkpoint."""
    if incident.trigger is not None:
        return str(incident.trigger)
    if incident.cause.startswith(RESUMED):
        return ""
    if incident.lost:
        return "machine lost"
    return next((name for name, text in _CAUSES.items() if text.match(incident.cause)), "other")
