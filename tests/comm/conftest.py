"""Fixtures of the comm tests."""

from comm_ranks import comm, ranks

__all__ = ["comm", "ranks"]
