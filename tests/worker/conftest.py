"""Fixtures of the worker tests."""

from vaults import buddies

__all__ = ["buddies"]
