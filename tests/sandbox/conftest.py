"""Real ranks, as the comm tests have them."""

from tests.comm.comm_ranks import comm, ranks

__all__ = ["comm", "ranks"]
