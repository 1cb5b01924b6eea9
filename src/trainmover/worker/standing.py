# SPDX-License-Identifier: Apache-2.0
"""Where this process's rank stands (`rank.standing`), under one lock.

The control thread writes orders in, the main thread waits on them. Every call that reads and then
acts is made under `changed`. Who waits may hold it already, and then acts on what it got before
anything else can change.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from trainmover.errors import Unwind
from trainmover.ids import Step
from trainmover.rank.standing import NONE, NOT_YET, NotYet, Standing

__all__ = ["NONE", "GuardedStanding", "Unwind"]

T = TypeVar("T")


@dataclass
class GuardedStanding(Standing):
    """Guarded by `changed`, which whoever does not wait enters by its `lock`.

    recalled    other work waits for this process: a run that is only held unwinds
    unheard     no controller hears what is told
    ending      step after which another rank's script has ended
    """

    lock: "threading.RLock" = field(default_factory=threading.RLock)
    changed: threading.Condition = field(init=False)
    recalled: bool = False
    unheard: bool = False
    ending: Step | None = None

    def __post_init__(self) -> None:
        self.changed = threading.Condition(self.lock)

    def until(self, told: Callable[[], T | NotYet]) -> T:
        """Wait for the answer; `told` is asked under the lock, again after each order."""
        with self.changed:
            while (answer := told()) is NOT_YET:
                self.changed.wait()
            return answer

    def await_exit(self) -> None:
        """Nothing is left to do but to be told so."""
        with self.changed:
            while not self.exit:
                self.changed.wait()
