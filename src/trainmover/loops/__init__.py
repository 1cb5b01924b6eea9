# SPDX-License-Identifier: Apache-2.0
"""Loops of a script whose position is a variable.

Code is rewritten as it is imported (`importer.py`, `rewrite.py`). Its loops iterate over objects
that can be found from their frames (`place.py`), read and set, and that can repeat a turn
(`turns.py`).
Rewritten code names this module `__tm__`, and uses what stands here.
"""

from trainmover.loops.iterators import twin
from trainmover.loops.turns import (
    Collector,
    Retry,
    delegate,
    ends_turn,
    goes_on,
    iterate,
    left,
    repeat,
)

__all__ = [
    "Collector",
    "Retry",
    "delegate",
    "ends_turn",
    "goes_on",
    "iterate",
    "left",
    "repeat",
    "twin",
]
