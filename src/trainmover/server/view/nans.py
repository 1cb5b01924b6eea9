"""Reported numbers that are none: NaN or infinite. Pure."""

import math

from trainmover.protocol.messages import Committed


def not_a_number(fact: Committed) -> str:
    """The first of a batch, in words; "" if all are finite."""
    for row in fact.rows:
        for name, value in row.values.items():
            if not math.isfinite(value):
                return f"rank {fact.rank} reported {name} = {value} in step {row.step}"
    return ""


def stopped_text(found: str) -> str:
    """Three lines for whoever ran the job."""
    return (
        f"{found[0].upper()}{found[1:]}.\n"
        "The job has ended, that is what --on-nan stop asks for; steps then under way may count.\n"
        "Start it again from a checkpoint before that step, with other data or a lower rate."
    )
