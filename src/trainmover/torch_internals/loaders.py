"""Iterators of torch's DataLoader: what they fetch, and how to pass over it."""

from typing import Any

UNBEGUN: dict[str, Any] = {"_iterator": None}
"""Attributes of a DataLoader that nobody has iterated."""


def fetches_here(iterator: Any) -> bool:
    """Whether this process fetches the data, and not one of the loader's own."""
    return bool(iterator._num_workers == 0)


def pass_over(iterator: Any) -> None:
    """The next batch: its indices are drawn, its data is not fetched. Raises StopIteration."""
    iterator._next_index()
