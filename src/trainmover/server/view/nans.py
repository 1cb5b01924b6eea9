# SPDX-License-Identifier: Apache-2.0
"""Reported numbers that are none: NaN or infinite. Pure."""

import math

from trainmover.protocol.messages import Columns


def not_a_number(rows: Columns) -> str:
    """The first of them, in words; "" if all are finite."""
    if rows.finite:
        return ""
    return next(
        f"rank {rank} reported {name} = {value} in step {row.step}"
        for rank, its in rows.each()
        for row in its
        for name, value in row.values.items()
        if not math.isfinite(value)
    )


def stopped_text(found: str) -> str:
    """Three lines for whoever ran the job."""
    return (
        f"{found[0].upper()}{found[1:]}.\n"
        "The job has ended, that is what --on-nan stop asks for; steps then under way may count.\n"
        "Start it again from a checkpoint before that step, with other data or a lower rate."
    )
