# SPDX-License-Identifier: Apache-2.0
"""What a server tells whoever watches it: the screen, the demo, the event stream."""

from dataclasses import dataclass

from trainmover.controller.events import Event
from trainmover.controller.state import Job
from trainmover.ids import Epoch, Rank
from trainmover.protocol.messages import Row


@dataclass(frozen=True)
class Happened:
    """An entry of the journal. `text` may be ""; `loud`: worth a line on the screen of the run,
    and `good`: as good news.

    event   None for a note
    before  the job before it; the same object as `after` for a note
    """

    seq: int
    at_us: int
    kind: str
    text: str
    loud: bool
    event: Event | None
    before: Job
    after: Job
    good: bool = False


@dataclass(frozen=True)
class Told:
    """An entry of the journal, and what people are told of it; "" if nothing. event: None for a
    note."""

    seq: int
    at_us: int
    kind: str
    text: str
    event: Event | None


@dataclass(frozen=True)
class Printed:
    """Lines a worker has printed, newlines included. rank -1: the lines say whose they are."""

    rank: Rank
    stream: str
    text: str


@dataclass(frozen=True)
class Stepped:
    """Steps a rank has committed."""

    rank: Rank
    epoch: Epoch
    rows: list[Row]


Notice = Happened | Printed | Stepped
