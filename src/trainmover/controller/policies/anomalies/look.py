# SPDX-License-Identifier: Apache-2.0
"""What machines tell anyway, watched for what comes before a failure: `AnomalyFound`. Pure.

It lives beside the job and is not replayed, as `stragglers.pace` does: a controller that comes back
begins to look anew. A round of ten seconds is one figure of each machine.
"""

from collections import deque
from dataclasses import dataclass, field

from trainmover.controller.events import AnomalyFound
from trainmover.controller.policies.anomalies.drift import Drift
from trainmover.controller.policies.anomalies.filling import full_in_s
from trainmover.controller.policies.anomalies.late import limit_s
from trainmover.controller.policies.anomalies.repeats import repeating
from trainmover.controller.policies.stragglers.excess import LIKELY, is_no_chance
from trainmover.controller.state import Job, Phase
from trainmover.ids import MachineId, Rank

ROUND_US = 10_000_000
LATE_ROUNDS, MEMORY_ROUNDS = 30, 90
"""So many of the last ones are looked at: five minutes, a quarter of an hour."""
AGAIN_US = 3600 * 1_000_000
"""The same of the same machine is told again after an hour."""


@dataclass
class _Machine:
    """heard_us: last; gap_us: the longest of this round; free: bytes at the end of each round."""

    heard_us: int
    gap_us: int = 0
    free_bytes: int = 0
    all_bytes: int = 0
    late: deque[bool] = field(default_factory=lambda: deque(maxlen=LATE_ROUNDS))
    free: deque[int] = field(default_factory=lambda: deque(maxlen=MEMORY_ROUNDS))


class Look:
    """Of one job, as one controller hears it."""

    def __init__(self) -> None:
        self._machines: dict[MachineId, _Machine] = {}
        self._drifts: dict[Rank, tuple[MachineId, Drift]] = {}
        self._crept: dict[MachineId, str] = {}
        self._told: dict[tuple[MachineId, str], int] = {}
        self._round_us = 0

    def heard(self, machine: MachineId, free_bytes: int, all_bytes: int, at_us: int) -> None:
        """A heartbeat. free_bytes, all_bytes: of its memory; 0: it does not say."""
        one = self.alive(machine, at_us)
        one.free_bytes, one.all_bytes = free_bytes, all_bytes

    def alive(self, machine: MachineId, at_us: int) -> _Machine:
        """A heartbeat that says nothing more."""
        one = self._machines.get(machine)
        if one is None:
            one = self._machines[machine] = _Machine(at_us)
        one.gap_us = max(one.gap_us, at_us - one.heard_us)
        one.heard_us = at_us
        return one

    def took(self, machine: MachineId, rank: Rank, own: float, usual: float) -> None:
        """A step of a rank there: its own time, and that of the others of its role."""
        known, drift = self._drifts.get(rank, (None, None))
        if drift is None or known != machine:
            drift = Drift()
            self._drifts[rank] = machine, drift
        by = drift.add(own, usual)
        if by is not None:
            self._crept[machine] = (
                f"the steps of rank {rank} have become {by:.0%} longer beside those of its peers"
            )

    def look(self, job: Job, at_us: int) -> list[AnomalyFound]:
        """What is known now and was not before; to be called every beat."""
        if at_us - self._round_us < ROUND_US or job.spec.anomalies == "off":
            return []
        self._round_us = at_us
        self._machines = {n: one for n, one in self._machines.items() if n in job.machines}
        if job.phase is not Phase.RUNNING:
            return []
        self._end_round(job, at_us)
        found = [*self._late(), *self._filling()]
        found += [(name, "creeps", text, False) for name, text in self._crept.items()]
        self._crept = {}
        found += self._repeating(job, at_us)
        return [
            AnomalyFound(at_us=at_us, machine=name, sign=sign, text=text, grave=grave)
            for name, sign, text, grave in found
            if name in job.machines and self._is_new(name, sign, at_us)
        ]

    def _is_new(self, machine: MachineId, sign: str, at_us: int) -> bool:
        last_us = self._told.get((machine, sign))
        if last_us is not None and at_us - last_us < AGAIN_US:
            return False
        self._told[machine, sign] = at_us
        return True

    def _end_round(self, job: Job, at_us: int) -> None:
        """Take in one round. A machine without contact is not late: see `standstill.contact`."""
        gaps_s = {
            name: max(one.gap_us, at_us - one.heard_us) / 1e6
            for name, one in self._machines.items()
            if name not in job.away
        }
        limit = limit_s(gaps_s.values())
        for name, one in self._machines.items():
            one.gap_us = 0
            if limit is not None and name in gaps_s:
                one.late.append(gaps_s[name] > limit)
            if one.all_bytes:
                one.free.append(one.free_bytes)

    def _late(self) -> list[tuple[MachineId, str, str, bool]]:
        found = []
        for name, one in self._machines.items():
            late, rounds = sum(one.late), len(one.late)
            if is_no_chance(late, rounds, LIKELY):
                one.late.clear()
                text = f"its agent spoke late in {late} of the last {rounds} rounds of ten seconds"
                found.append((name, "late", text, True))
        return found

    def _filling(self) -> list[tuple[MachineId, str, str, bool]]:
        found = []
        for name, one in self._machines.items():
            left_s = full_in_s([*one.free], one.all_bytes, ROUND_US / 1e6)
            if left_s is not None:
                free = f"{one.free_bytes / 1e9:.1f} of {one.all_bytes / 1e9:.1f} GB"
                text = f"its memory is full in about {left_s / 60:.0f} min: {free} are left"
                found.append((name, "filling", text, False))
        return found

    @staticmethod
    def _repeating(job: Job, at_us: int) -> list[tuple[MachineId, str, str, bool]]:
        return [
            (name, "repeats", f"{count} incidents of the last hour have begun on it", True)
            for name, count in repeating(job, at_us).items()
        ]
