# SPDX-License-Identifier: Apache-2.0
"""What a job keeps of examinations. Pure."""

from dataclasses import dataclass, field

from trainmover.controller.facts import Facts
from trainmover.ids import MachineId


@dataclass(frozen=True)
class Examination:
    """The newest of one machine.

    number   of the examinations of this job
    request  of the API, to be answered when it is judged; "" else
    figures  name -> what was measured; {} before it was told
    wrong    what it did that no healthy machine does; "" if nothing
    told     its agent has answered
    judged   it was compared with others
    failed   why it is not fit; "" if it is, or while that is not known
    """

    number: int
    request: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    wrong: str = ""
    told: bool = False
    judged: bool = False
    failed: str = ""


@dataclass(frozen=True)
class Health:
    """asked: examinations so far. newest: machines that joined last, a few. untold: how many are
    under way."""

    asked: int = 0
    newest: tuple[MachineId, ...] = ()
    of: Facts[MachineId, Examination] = field(default_factory=Facts)
    untold: int = 0
