# SPDX-License-Identifier: Apache-2.0
"""Append-only log of a job: its spec, every event, every committed step."""

from trainmover.journal.journal import Entry, Journal
from trainmover.journal.rows import CommittedRow

__all__ = ["CommittedRow", "Entry", "Journal"]
