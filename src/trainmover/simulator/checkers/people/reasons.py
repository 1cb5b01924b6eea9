# SPDX-License-Identifier: Apache-2.0
"""Why a job ends is so, figure by figure; and so is why it goes back.

People are told how many machines there are and how many are needed, what has failed how often,
what there was to go back to, and which checkpoint there is. Each claim is looked for in the job.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.interruption import RETRIES_MAX
from trainmover.controller.effects import End
from trainmover.controller.events import StopRequested
from trainmover.controller.state import Cut, Job, MachineState
from trainmover.ids import Rank
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

Claim = Callable[[Decided, list[int]], bool]


def _has_place(job: Job, cut: Cut, rank: Rank) -> bool:
    vaults = {one.vault for one in job.machines.values()}
    alive = {address for one in job.machines.values() for address in one.workers.values()}
    kept = {cut.vaults.get(rank), cut.further.get(rank)} & vaults
    return bool(kept) or cut.workers.get(rank) in alive


def _is_lost(moment: Decided, said: list[int]) -> bool:
    job = moment.after
    if job.cut is None:
        return False
    lost = [rank for rank in job.cut.vaults if not _has_place(job, job.cut, rank)]
    return said == [min(lost, default=None)]


def _there_was_none(moment: Decided, _: list[int]) -> bool:
    """A cut that a rank cannot read is none any more."""
    job, unusable = moment.after, getattr(moment.event, "fact", None)
    spoilt = getattr(unusable, "unusable", 0)
    return job.cut is None and (moment.before.cut is None or bool(spoilt))


def _are_left(moment: Decided, said: list[int]) -> bool:
    spec, (left, needed) = moment.after.spec, said
    return needed == spec.machines and left < needed and left >= 0


def _must_be_replaced(moment: Decided, said: list[int]) -> bool:
    job = moment.after
    if moment.before.saves_last:
        return True  # It was so when the last checkpoint began.
    empty = [
        name
        for name in job.seats
        if name not in job.machines or job.machines[name].state is not MachineState.ACTIVE
    ]
    spare = [name for name in job.machines if name not in (*job.seats, *job.cordoned)]
    return 1 <= said[0] <= max(len(empty), 1) and said[1] == len(spare)


def _is_the_newest(moment: Decided, said: list[int]) -> bool:
    found = moment.after.checkpoint
    return found is not None and said == [found.step]


def _is_after(moment: Decided, said: list[int]) -> bool:
    return moment.before.committed <= said[0]


CLAIMS: list[tuple[str, Claim]] = [
    (r"(\d+) machines? must be replaced and (\d+) standby", _must_be_replaced),
    (r"none has come in (\d+) s", lambda moment, said: said == [moment.after.spec.wait_s]),
    (r"there was no snapshot of all ranks yet", _there_was_none),
    (
        r"snapshots were turned off",
        lambda moment, _: moment.after.spec.snapshot_every == 0 and moment.after.cut is None,
    ),
    (r"the snapshot of rank (\d+) was lost as well", _is_lost),
    (r"snapshots were given up", lambda moment, _: bool(moment.after.no_snapshots)),
    (
        r"has used its (\d+) restarts",
        lambda moment, said: (
            said == [moment.after.spec.restarts_max] and moment.after.restarts > said[0]
        ),
    ),
    (r"(\d+) machines are left(?: to begin with)?; (\d+) are needed", _are_left),
    (r"The job has ended after step (\d+)", _is_after),
    (r"that was recovery (\d+) in a row", lambda _, said: said == [RETRIES_MAX]),
    (r"[Cc]heckpoint of step (\d+)", _is_the_newest),
    (r"The newest is that of step (\d+)", _is_the_newest),
    (r"There is none\.|begins anew", lambda moment, _: moment.after.checkpoint is None),
    (r"--resume goes on from it", lambda moment, _: moment.after.checkpoint is not None),
    (r"it took longer than", lambda moment, _: _is_over(moment)),
]


def _is_over(moment: Decided) -> bool:
    stopping = moment.before.stopping
    return stopping is not None and moment.event.at_us >= stopping.until_us


class Reasons:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, End) and effect.text:
                self._is_so(moment, effect)

    def _is_so(self, moment: Decided, end: End) -> None:
        for words, holds in CLAIMS:
            for match in re.finditer(words, end.text):
                if not holds(moment, [int(figure) for figure in match.groups()]):
                    raise Violation(f"{match[0]!r} is not so: {end.text}")
        failed = re.search(r"Step (\d+) has failed (\d+) times:\n((?:  .*\n)+)", end.text)
        if failed is not None:
            tries = [line for line in failed[3].splitlines() if line.startswith("  incident ")]
            if int(failed[2]) != len(tries) or int(failed[1]) > self.world.training.newest + 1:
                raise Violation(f"{tries} are said to be {failed[2]} failures: {end.text}")
        asked = isinstance(moment.event, StopRequested)
        if end.code and not asked and end.text.count("\n") < 1:
            raise Violation(f"people are told no more than {end.text!r}")
        if (moment.after.code, moment.after.ended_because) != (end.code, end.text):
            raise Violation(f"the job ends with {end}, and knows {moment.after.code}")
