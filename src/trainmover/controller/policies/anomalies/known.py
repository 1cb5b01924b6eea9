# SPDX-License-Identifier: Apache-2.0
"""What a job keeps of machines that seem about to fail. Pure."""

from dataclasses import dataclass, field

from trainmover.ids import MachineId

KEPT = 64
"""Findings: a job that lives for months keeps the newest."""


@dataclass(frozen=True)
class Finding:
    """What was found of one machine by one detector, in the hour since `at_us`.

    sign   the detector, or the rule of `symptoms`
    text   what was seen
    grave  whether the machine is believed to fail soon: nothing is done about others
    times  how often it was found
    done   what was done about it, or why nothing; for people
    """

    at_us: int
    machine: MachineId
    sign: str
    text: str
    grave: bool
    done: str = ""
    times: int = 1


@dataclass(frozen=True)
class Excess:
    """How many more lines of a kind there were than are usual, as of `at_us`."""

    value: float
    at_us: int


@dataclass(frozen=True)
class Anomalies:
    """findings: the newest last. excesses: machine and rule of `symptoms` -> lines too many."""

    findings: tuple[Finding, ...] = ()
    excesses: dict[tuple[MachineId, str], Excess] = field(default_factory=dict)
