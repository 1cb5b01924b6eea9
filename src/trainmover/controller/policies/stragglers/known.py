# SPDX-License-Identifier: Apache-2.0
"""What a job keeps of machines that are slow. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum

from trainmover.controller.events import SlowFound
from trainmover.ids import MachineId, Slot

KEPT = 64
"""Findings and moves: a job that lives for months keeps the newest."""


class Effect(StrEnum):
    """What a move away from a slow machine has come to."""

    OPEN = "not measured yet"
    HELPED = "helped"
    VAIN = "in vain"  # the ranks are as slow elsewhere: it was theirs, not the machine's
    WORSE = "worse"  # slower than before


@dataclass(frozen=True)
class Finding:
    """done: what was done about it, or why nothing; for people."""

    found: SlowFound
    done: str


@dataclass(frozen=True)
class SlowMove:
    """A move for slowness. own_ms, usual_ms: before it; the others: after it. kind: whose."""

    slot: Slot
    leaver: MachineId
    joiner: MachineId
    incident: int
    own_ms: float
    usual_ms: float
    effect: Effect = Effect.OPEN
    own_after_ms: float = 0.0
    usual_after_ms: float = 0.0
    repaid_steps: float | None = None
    kind: str = "machine"


@dataclass(frozen=True)
class Stragglers:
    """findings, moves: the newest last. held_us: when a standby last took the run of a slot on mere
    suspicion."""

    findings: tuple[Finding, ...] = ()
    moves: tuple[SlowMove, ...] = field(default_factory=tuple)
    held_us: int | None = None
