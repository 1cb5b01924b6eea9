"""Where verbs print what people read."""

from rich.console import Console

_WIDTH = 1000


def whole_lines() -> Console:
    """Lines are as long as what they say: a terminal wraps them, and nothing is cut in a pipe. What
    stands in brackets is what somebody has written, not how it is to look."""
    return Console(highlight=False, soft_wrap=True, markup=False, width=_WIDTH)
