# SPDX-License-Identifier: Apache-2.0
"""Machines of which nothing is heard: away first, and lost only where there is evidence. Pure.

    link silent or ended -> quiet -> away ->  heard again, or it returns: nothing was
                                           |  lost: evidence, or its patience is over

Silence is not death: a network that forwards nothing for a while looks like it, and ranks that
reach each other train on meanwhile. What tells the two apart:

    its process has ended   who has started it says so; or its link has ended, its host answers,
                            and nobody listens any more where its vault was
    it holds the others up  no step was committed for a second, neither the controller nor the
                            machines beside it reach its agent, and the job has waited for as long
                            as giving it up costs (`controller.change.price`): a warm standby costs
                            less than that second, steps made again cost more, and a job that would
                            end waits. A late rank whose agent answers is the affair of those who
                            watch ranks (`controller.hanging`)
    it is no loss           it has no ranks, and nobody reaches it

A step that is committed has passed the gate of all ranks, so they all live. Whoever cannot ask
anybody gives nobody up: if most machines fall silent at once, it is the controller's own network
that is suspected. All is counted in beats: a controller that stood still condemns nobody.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trainmover.controller.change.price import Price, price_of
from trainmover.controller.events import Lost
from trainmover.controller.state import Job
from trainmover.ids import Epoch, MachineId, Step
from trainmover.protocol.deadlines import BEAT_S, Deadlines, beats
from trainmover.server.surroundings import Link

LINK_ENDED = "its link has ended"
AGENT_ENDED = "its agent has ended"
WITNESSES = 3
"""Machines that are asked whether they reach those that are quiet."""
REPORTS_KEPT = 11
QUESTIONS_KEPT = 6


class Dialled(StrEnum):
    """What came of dialling a machine's vault."""

    ANSWERED = "answered"
    REFUSED = "refused"  # its host answers: nobody listens there
    UNREACHED = "unreached"


@dataclass
class Quiet:
    """One machine of which nothing is heard.

    heard_us  when something was, last
    broken    how its link has ended; "": it has not
    ended     how its process has ended, if somebody knows; "": nobody does
    carried   it was behind a relay: that may be all that is silent
    beats     for which it is so
    told      people were told that it is away
    dialling  it is being dialled; `dialled` is what came of that last
    asked     somebody was asked for it
    number    of the newest question that a witness has answered, and `seen`: who reaches it
    """

    heard_us: int
    broken: str = ""
    ended: str = ""
    carried: bool = False
    beats: int = 0
    told: bool = False
    dialling: bool = False
    dialled: Dialled | None = None
    asked: bool = False
    number: int = 0
    seen: dict[MachineId, bool] = field(default_factory=dict)

    @property
    def is_reached(self) -> bool:
        """Whether the controller or a witness reaches it."""
        return self.dialled is Dialled.ANSWERED or any(self.seen.values())

    @property
    def unreached(self) -> bool:
        """Neither the controller nor anybody who was asked reaches it."""
        asked = self.seen and not any(self.seen.values())
        return bool(asked) and self.dialled not in (None, Dialled.ANSWERED)


class Steps:
    """Whether steps are committed, by anybody.

    held_up_beats  without one, and ranks stand still; first_beats: while nothing is known yet
    """

    def __init__(self, first_beats: int, held_up_beats: int) -> None:
        self.still_beats = 0
        self._first, self._held_up = first_beats, held_up_beats
        self._newest = (Epoch(0), Step(0))
        self._took: deque[float] = deque(maxlen=REPORTS_KEPT)  # Beats a step.
        self._gaps: deque[int] = deque(maxlen=REPORTS_KEPT)

    def committed(self, epoch: Epoch, step: Step) -> None:
        """A rank tells of it."""
        if (epoch, step) > self._newest:
            if self._newest[1]:
                self._gaps.append(self.still_beats)
                self._took.append(self.still_beats / max(1, step - self._newest[1]))
            self._newest, self.still_beats = (epoch, step), 0

    @property
    def newest(self) -> Step:
        """The last step that somebody has committed."""
        return self._newest[1]

    @property
    def step_ms(self) -> float:
        """Return about how long a step takes, in milliseconds; 0 while nothing is known."""
        usual = sorted(self._took)[len(self._took) // 2] if self._took else 0.0
        return 1000 * BEAT_S * usual

    @property
    def stand_still(self) -> bool:
        """Longer than they should."""
        usual = sorted(self._gaps)[len(self._gaps) // 2] if self._gaps else 0
        least = max(self._held_up, 2 * usual) if self._gaps else self._first
        return self.still_beats >= least


class Absence:
    """quiet: by machine. number: of the newest question to witnesses.

    patience_s: how long a machine may be away. after_another: a controller was before this one
    """

    def __init__(
        self,
        patience_s: float,
        deadlines: Deadlines | None = None,
        *,
        after_another: bool = False,
    ) -> None:
        self._deadlines = deadlines = deadlines or Deadlines()
        self.quiet: dict[MachineId, Quiet] = {}
        first_s = deadlines.spare_s if after_another else deadlines.held_up_first_s
        self.steps = Steps(beats(first_s), beats(deadlines.held_up_s))
        self._away_beats = beats(deadlines.away_s)
        self._latest_beats = self._away_beats + beats(deadlines.together_s)
        self._patience_s = patience_s
        self.number = 0
        self._questions: deque[tuple[int, frozenset[MachineId]]] = deque(maxlen=QUESTIONS_KEPT)
        self._since_question = beats(deadlines.answer_s)
        self._suspects_itself = False
        self._awaited: frozenset[MachineId] = frozenset()
        self._told_awaited: frozenset[MachineId] = frozenset()
        self._price: Price | None = None

    @property
    def away(self) -> list[MachineId]:
        return [machine for machine, one in self.quiet.items() if self._is_away(one)]

    def _is_away(self, one: Quiet) -> bool:
        return bool(one.broken) or one.beats >= self._away_beats

    # --- what is seen ---------------------------------------------------------------------------

    def broke(self, machine: MachineId, why: str, heard_us: int, *, carried: bool = False) -> None:
        """Its link has ended, or there is none yet."""
        one = self.quiet.setdefault(machine, Quiet(heard_us))
        one.broken, one.carried = why, carried

    def ended(self, machine: MachineId, why: str) -> None:
        """Who has started its agent says so. Of one that is heard it is old news."""
        if machine in self.quiet:
            self.quiet[machine].ended = why

    def listen(self, links: Mapping[MachineId, Link]) -> dict[MachineId, float]:
        """A beat. Machines that are heard again, and after how many seconds, as `back` says."""
        self.steps.still_beats += 1
        quiet = beats(self._deadlines.quiet_s)
        for machine, link in links.items():
            if link.quiet_ticks >= quiet:
                one = self.quiet.setdefault(machine, Quiet(link.heard_us))
                one.beats, one.carried = link.quiet_ticks, link.relay is not None
        for machine, one in self.quiet.items():
            if machine not in links:
                one.beats += 1
        again = [name for name in self.quiet if name in links and links[name].quiet_ticks < quiet]
        return {name: self.back(name) for name in again}

    def back(self, machine: MachineId) -> float:
        """It is there again; after so many seconds, 0 if nobody was told that it was away."""
        one = self.quiet.pop(machine, None)
        return one.beats * BEAT_S if one is not None and one.told else 0.0

    def forget(self, machine: MachineId) -> None:
        """The job has given it up, for a reason of its own."""
        self.quiet.pop(machine, None)

    # --- what is asked --------------------------------------------------------------------------

    def to_dial(self) -> list[MachineId]:
        """Machines whose vault is to be dialled now."""
        names = [name for name, one in self.quiet.items() if not one.dialling]
        for name in names:
            self.quiet[name].dialling = True
        return names

    def dialled(self, machine: MachineId, what: Dialled) -> bool:
        """It was. Whether more may be certain now: of one that is only silent nothing ever is, and
        thousands may be for a moment."""
        one = self.quiet.get(machine)
        if one is None:
            return False
        one.dialling, one.dialled = False, what
        return bool(one.broken)

    def witnesses(self, job: Job, fresh: Collection[MachineId]) -> list[MachineId]:
        """Who is to be asked now for all that are quiet. fresh: machines that were just heard."""
        self._since_question += 1
        is_due = self._since_question > beats(self._deadlines.answer_s)
        if not is_due and all(one.asked for one in self.quiet.values()):
            return []
        found = _beside(job, self.quiet, fresh)[:WITNESSES] if self.quiet else []
        if found:
            self._since_question = 0
            self.number += 1
            self._questions.append((self.number, frozenset(self.quiet)))
            for one in self.quiet.values():
                one.asked = True
        return found

    def found(self, witness: MachineId, number: int, reached: Collection[MachineId]) -> None:
        """A witness answers."""
        for machine in dict(self._questions).get(number, frozenset()) & self.quiet.keys():
            one = self.quiet[machine]
            if number > one.number:
                one.number, one.seen = number, {}
            if number == one.number:
                one.seen[witness] = machine in reached

    def reached_by_others(self) -> dict[MachineId, list[MachineId]]:
        """Return the machines that only the controller does not reach, and who reaches each."""
        return {
            name: [witness for witness, reaches in one.seen.items() if reaches]
            for name, one in self.quiet.items()
            if self._is_away(one) and not one.ended and any(one.seen.values())
        }

    # --- what follows ---------------------------------------------------------------------------

    def certain(self) -> list[Lost]:
        """Whose process has ended. All at once, if it is being looked after that of more."""
        if any(one.broken and one.dialled is None and not one.ended for one in self.quiet.values()):
            return []
        return self._lost({name: why for name, one in self.quiet.items() if (why := _ended(one))})

    def lost(self, job: Job) -> list[Lost]:
        """Whoever is no longer waited for."""
        looked = {name: self._why(name, one, job) for name, one in self.quiet.items()}
        why = {name: text for name, text in looked.items() if text}
        holding = self._holding_up(job)
        self._awaited, self._price = frozenset(), None
        if holding:
            price = price_of(
                job,
                self._as_lost(holding | why),
                newest=self.steps.newest,
                step_ms=self.steps.step_ms,
            )
            if price.ms <= 1000 * BEAT_S * self.steps.still_beats:
                why = holding | why
            else:
                self._awaited = frozenset(m for m in holding if _is_needed(m, job))
                self._price = price
        return [] if self._more_may_follow(why) else self._lost(why)

    @property
    def awaited(self) -> tuple[frozenset[MachineId], str]:
        """Return the machines that the job stands still for and does not give up, and why not."""
        return self._awaited, "" if self._price is None else _priced(self._price)

    def _holding_up(self, job: Job) -> dict[MachineId, str]:
        """Why those are lost who are not reached while ranks stand still for one that has some, or
        is to. All of them: a standby of the same rack must not be taken."""
        them = {
            name: one for name, one in self.quiet.items() if self._is_away(one) and one.unreached
        }
        if not self.steps.stand_still or not any(_is_needed(name, job) for name in them):
            return {}
        return {name: f"{_nobody_reaches(one)}; no step is committed" for name, one in them.items()}

    def _more_may_follow(self, why: Mapping[MachineId, str]) -> bool:
        """Whether others have fallen silent with them, a beat later perhaps, and it is not known
        yet what of them: a rack is one loss. Nobody is waited for much longer for that."""
        latest = self._latest_beats
        if any(self.quiet[name].beats >= latest for name in why):
            return False
        others = (one for name, one in self.quiet.items() if name not in why)
        return bool(why) and any(not one.is_reached and one.beats < latest for one in others)

    def news(self, all_of_them: int) -> list[str]:
        """Lines for people: who is away since the last look."""
        lines = []
        for name, one in self.quiet.items():
            if one.beats >= self._away_beats and not one.told:
                one.told = True
                how = one.broken or f"silent for {one.beats * BEAT_S:.0f} s"
                lines.append(f"{name} is away ({how}): its ranks train on, and it may return")
        if self._awaited - self._told_awaited:
            names = ", ".join(sorted(self._awaited))
            assert self._price is not None
            lines.append(
                f"no step is committed, and {names} is not given up: {_priced(self._price)}. The "
                f"job waits for it, up to {self._patience_s:.0f} s (--patience)"
            )
        self._told_awaited = self._awaited
        suspects_itself = self._most_are_away(all_of_them)
        if suspects_itself and not self._suspects_itself:
            lines.append(
                f"{len(self.away)} of {all_of_them} machines are away at once: the controller "
                "suspects its own network, and gives nobody up for silence"
            )
        self._suspects_itself = suspects_itself
        return lines

    def _most_are_away(self, all_of_them: int) -> bool:
        return len(self.away) > max(1, all_of_them // 2)

    def _lost(self, why: dict[MachineId, str]) -> list[Lost]:
        lost = self._as_lost(why)
        for name in why:
            del self.quiet[name]
        return lost

    def _as_lost(self, why: Mapping[MachineId, str]) -> list[Lost]:
        known = {name: self.quiet[name] for name in why}
        return [
            Lost(machine=name, why=why[name], heard_us=one.heard_us, ended=bool(_ended(one)))
            for name, one in known.items()
        ]

    def _why(self, name: MachineId, one: Quiet, job: Job) -> str:
        """Of one alone, whatever becomes of the others."""
        if (text := _ended(one)) or not self._is_away(one):
            return text
        deadlines = self._deadlines
        longest_s = self._patience_s + deadlines.lease_more_s
        if one.beats >= beats(longest_s):
            return f"it was away for {longest_s:.0f} s (--patience)"
        if one.beats < beats(deadlines.spare_s + one.carried * deadlines.fall_back_s):
            return ""
        return _nobody_reaches(one) if one.unreached and not _is_needed(name, job) else ""


def _priced(price: Price) -> str:
    if math.isinf(price.ms):
        return f"{price.why}" if price.way else f"the job would end, for {price.why}"
    return f"to {price.way} would cost {price.ms / 1000:.1f} s ({price.why})"


def _nobody_reaches(one: Quiet) -> str:
    asked = " nor ".join(["the controller", *sorted(one.seen)])
    return f"no heartbeat, and neither {asked} reaches it"


def _is_needed(name: MachineId, job: Job) -> bool:
    return name in job.seats or _joins(name, job)


def _joins(name: MachineId, job: Job) -> bool:
    return job.change is not None and name in job.change.joiners.values()


def _ended(one: Quiet) -> str:
    if one.ended:
        return one.ended
    if not one.broken or one.dialled is not Dialled.REFUSED:
        return ""
    return AGENT_ENDED if one.broken == LINK_ENDED else f"{one.broken}: {AGENT_ENDED}"


def _beside(job: Job, quiet: Iterable[MachineId], fresh: Collection[MachineId]) -> list[MachineId]:
    """Who may reach them if anybody does: machines that come next to them, then all others."""
    seats = list(job.seats)
    order = sorted(job.machines, key=lambda name: job.machines[name].place)
    first = next((seats.index(name) for name in quiet if name in seats), 0)
    names = dict.fromkeys([*seats[first:], *seats[:first], *order])
    return [name for name in names if name in fresh and name in job.machines]
