"""Append-only log of a job: its spec, every event, every committed step."""

from trainmover.journal.journal import CommittedRow, Entry, Journal

__all__ = ["CommittedRow", "Entry", "Journal"]
