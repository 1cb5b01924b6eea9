"""Processes that have ranks, or are to have some; what they decide is decided by `rank`."""
