"""Where verbs print what people read."""

from rich.console import Console

_WIDTH = 1000


def whole_lines(*, markup: bool = True) -> Console:
    """Lines are as long as what they say: a terminal wraps them, and nothing is cut in a pipe."""
    return Console(highlight=False, soft_wrap=True, markup=markup, width=_WIDTH)
