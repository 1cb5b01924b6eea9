# SPDX-License-Identifier: Apache-2.0
"""Machines that are examined, of which is known who is sick: who takes ranks, and what is said."""

import random

from courses.trained import Trained
from trainmover.controller.effects import Answer, End
from trainmover.controller.events import (
    CordonRequested,
    HealthRequested,
    Lost,
    MachineJoined,
    MachinesLost,
    MoveRequested,
    UncordonRequested,
)
from trainmover.controller.state import Phase
from trainmover.ids import MachineId
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Violation

SICK = "its memory reads other bits than were written"
WAITS = "its health is not known yet"
PEERS = 3


class Course:
    """due: machine -> the number of the examination that it has yet to answer. joined: in order, of
    whom so many are examined as the job begins."""

    def __init__(
        self,
        chance: random.Random,
        policy: str,
        standbys: int = 2,
        kind: type[Trained] = Trained,
    ) -> None:
        self.chance, self.policy = chance, policy
        self.job = kind(
            chance, machines=3, standbys=standbys, wait_s=60, health=policy, anomalies="act"
        )
        self.due: dict[MachineId, int] = {}
        self.joined = [*self.job.names]
        self.begin = 0 if policy == "off" else len(self.joined)
        self.number = 0
        self.ordered()
        if (self.job.job.phase is Phase.GATHERING) is not (policy == "act"):
            raise Violation(f"all have come, {policy}: {self.job.job.phase}")

    def trains(self) -> Trained:
        """All are fit, and the job begins."""
        for name in [*self.due]:
            self.answer(name)
        self.job.trains()
        return self.job

    def ordered(self) -> list[MachineId]:
        """Who is to be examined now, with whom; all are numbered one by one."""
        found = self.job.orders(m.Examine)
        for name, order in found:
            self.number += 1
            if order.number != self.number:
                raise Violation(f"{name} is to be examined as number {self.number}: {order}")
            by_then = self.joined[: self.number] if self.number <= self.begin else self.joined
            here = self.job.job.machines
            newest = {
                peer: here[peer].vault for peer in by_then[-PEERS:] if peer != name and peer in here
            }
            if order.peers != newest:
                raise Violation(f"{name} is to measure the way to {newest}: {order}")
            self.due[name] = order.number
        self.job.told.clear()
        return [name for name, _ in found]

    def answer(
        self,
        name: MachineId,
        *,
        sick: bool = False,
        figures: dict[str, float] | None = None,
        off_ms: float = 0.0,
    ) -> None:
        """First with what it measured before, which counts for nothing. off_ms: of its clock."""
        number, before = self.due.pop(name), self.job.job
        old = m.Examined(number=number - 1, figures={}, failed="" if sick else SICK)
        self.job.agent_says(name, old)
        if self.job.job != before or self.job.told:
            raise Violation(f"{name} answers what was asked before {number}, and that counts")
        told = m.Examined(
            number=number,
            figures={"memory GB/s": 20.0} if figures is None else figures,
            failed=SICK if sick else "",
            clock_us=self.job.now_us + round(1000 * off_ms) if figures else 0,
        )
        self.job.agent_says(name, told)
        before = self.job.job
        self.job.agent_says(name, m.Examined(number=number, figures={}, failed="it is late"))
        if self.job.job != before:
            raise Violation(f"{name} answers twice, and that counts")

    def lose(self, name: MachineId) -> None:
        lost = Lost(machine=name, why="its link has ended", heard_us=self.job.now_us)
        self.job.hear(MachinesLost(at_us=self.job.now_us, lost=[lost]))

    def is_refused(self, name: MachineId, words: str) -> None:
        told = len(self.job.told)
        self.job.hear(HealthRequested(at_us=self.job.now_us, request="no", machine=name))
        said = self.last_answer()
        if said is None or said.ok or words not in said.text or len(self.job.told) > told + 1:
            raise Violation(f"{name} cannot be examined: {said}")
        self.job.told.pop()

    def is_kept_out(self, name: MachineId, reason: str) -> None:
        cordon = self.job.job.cordoned.get(name)
        known = cordon.reason if cordon is not None else ""
        if known != reason:
            raise Violation(f"{name} is to be kept out for {reason!r}, and is for {known!r}")

    def last_answer(self) -> Answer | None:
        return next((one for one in reversed(self.job.told) if isinstance(one, Answer)), None)


def _all_begin(chance: random.Random) -> None:
    """The job waits for all; who is sick has no ranks, as long as there are enough others."""
    course = Course(chance, "act")
    job = course.job
    if [*course.due] != job.names or job.job.phase is not Phase.GATHERING:
        raise Violation(f"all are examined before any begins: {course.due}, {job.job.phase}")
    for name in job.names:
        course.is_kept_out(name, "")
    course.is_refused(job.names[4], "is gathering")
    sick = chance.sample(job.names, chance.randint(0, 3))
    order = chance.sample(job.names, len(job.names))
    gone = order[-1] if chance.random() < 0.4 else ""
    sick = [name for name in sick if name != gone]
    for name in order:
        if job.job.phase is not Phase.GATHERING:
            raise Violation(f"{name} has yet to answer, and the job is {job.job.phase}")
        if name == gone:
            course.lose(name)
        else:
            course.answer(name, sick=name in sick)
    fit = [name for name in job.names if name not in sick and name != gone]
    end = job.end()
    if len([one for one in job.told if isinstance(one, End)]) > 1:
        raise Violation(f"the job ends more than once: {job.told}")
    if len(fit) < 3:
        words = ("not fit", "was lost before the job began")
        if end is None or end.code != 1 or not any(word in end.text for word in words):
            raise Violation(f"{sick} are sick, and {fit} are too few: {end}")
        return
    regular = [name for name in job.names[:3] if name in fit]
    begins = sorted(regular + [n for n in fit if n not in regular][: 3 - len(regular)])
    if end is not None or [*job.job.seats] != begins:
        raise Violation(f"{sick} are sick, {begins} were to begin: {job.job.seats}, {end}")
    for name in job.names:
        course.is_kept_out(name, f"not fit: {SICK}" if name in sick else "")


def _one_joins(chance: random.Random) -> None:
    """Later: nobody takes ranks before it is known to be fit, but where that is only watched."""
    policy = chance.choice(("act", "watch", "off"))
    course = Course(chance, policy)
    job = course.trains()
    new = MachineId("m9")
    job.names.append(new)
    course.joined.append(new)
    if chance.random() < 0.3:
        job.hear(CordonRequested(at_us=job.now_us, request="c", machine=job.names[3]))
    if chance.random() < 0.3:
        course.lose(job.names[4])
    joined = MachineJoined(at_us=job.now_us, machine=new, standby=True, vault="m9:1", host="h9")
    job.hear(joined)
    if course.ordered() != ([] if policy == "off" else [new]):
        raise Violation(f"{new} joins, {policy}: {course.due}")
    course.is_kept_out(new, WAITS if policy == "act" else "")
    if policy == "off":
        before = job.job
        job.agent_says(new, m.Examined(number=1, figures={}, failed=SICK))
        if job.job != before:
            raise Violation(f"nobody has asked {new} for what it says")
        return
    if chance.random() < 0.3:
        course.lose(new)
        course.is_kept_out(new, "")
        if new in job.job.health.of or job.job.health.untold:
            raise Violation(f"{new} is gone, and its health is waited for: {job.job.health}")
        return
    sick = chance.random() < 0.5
    course.answer(new, sick=sick)
    course.is_kept_out(new, f"not fit: {SICK}" if sick and policy == "act" else "")


def _somebody_asks(chance: random.Random) -> None:
    """He is answered once it is known, or at once if it cannot be."""
    policy = chance.choice(("act", "watch", "off"))
    course = Course(chance, policy)
    job = course.trains()
    name, seated = job.names[4], job.names[0]
    course.is_refused(seated, f"{seated} has ranks")
    course.is_refused(MachineId("m77"), "m77")
    job.hear(HealthRequested(at_us=job.now_us, request="yes", machine=name))
    if course.last_answer() is not None or course.ordered() != [name]:
        raise Violation(f"{name} is to be examined for somebody: {job.told}")
    job.hear(HealthRequested(at_us=job.now_us, request="more", machine=name))
    said = course.last_answer()
    if said is None or said.ok or "is being examined" not in said.text:
        raise Violation(f"{name} is being examined: {said}")
    job.told.clear()
    how = chance.choice(("fit", "sick", "lost"))
    if how == "lost":
        course.lose(name)
    else:
        course.answer(name, sick=how == "sick")
    said = course.last_answer()
    words = {"fit": f"{name} is fit: ", "sick": f"{name} is not fit: {SICK}", "lost": "was lost"}[
        how
    ]
    if said is None or (said.request, said.ok) != ("yes", how == "fit") or words not in said.text:
        raise Violation(f"{name} is {how}, and it is said {said}")
    out = how == "sick" and policy == "act"
    course.is_kept_out(name, f"not fit: {SICK}" if out else "")
    if how == "sick" and ("It takes no ranks." in said.text) is not out:
        raise Violation(f"{name} is {how}, {policy}: {said.text!r}")
    if how == "lost":
        return
    job.told.clear()
    course.lose(name)
    if course.last_answer() is not None:
        raise Violation(f"{name} is lost, and nobody waits for it: {job.told}")
    job.settles()
    job.hear(MoveRequested(at_us=job.now_us, request="m", machine=seated))
    course.is_refused(job.names[3], f"{job.names[3]} has ranks")


def _several_at_once(chance: random.Random) -> None:
    """Each is judged as it answers; and whom people let in stays in, whoever is judged then."""
    course = Course(chance, "act")
    job = course.trains()
    first, then = chance.sample(job.names[3:], 2)
    for name in (first, then):
        job.told.clear()
        job.hear(HealthRequested(at_us=job.now_us, request=name, machine=name))
        course.ordered()
    course.answer(first, sick=True)
    said = course.last_answer()
    if said is None or said.request != first or said.ok:
        raise Violation(f"{first} is sick, and {then} is yet to answer: {said}")
    course.is_kept_out(first, f"not fit: {SICK}")
    job.hear(UncordonRequested(at_us=job.now_us, request="u", machine=first))
    job.told.clear()
    sick = chance.random() < 0.5
    course.answer(then, sick=sick)
    answers = [one for one in job.told if isinstance(one, Answer)]
    if [one.request for one in answers] != [then] or answers[0].ok is sick:
        raise Violation(f"{then} is sick: {sick}, and it is said {answers}")
    course.is_kept_out(first, "")
    course.is_kept_out(then, f"not fit: {SICK}" if sick else "")


class Slow(Trained):
    """Its processes come up later."""

    def comes_up(self, name: MachineId) -> None:
        """Not yet."""


def _sick_and_lost(chance: random.Random) -> None:
    """Who is not fit, and is lost then, is one that the job has to do without."""
    course = Course(chance, "act", kind=Slow)
    job = course.job
    sick, other, *rest = chance.sample(job.names, 5)
    for name in job.names:
        course.answer(name, sick=name == sick)
    for name in chance.sample((sick, other), 2):
        course.lose(name)
    if job.end() is not None:
        raise Violation(f"{rest} are left of {job.names}: {job.end()}")
    for name in rest:
        Trained.comes_up(job, name)
    if [*job.job.seats] != sorted(rest) or job.job.phase is not Phase.RUNNING:
        raise Violation(f"{rest} are to begin: {job.job.seats}, {job.job.phase}")


def _also_otherwise(chance: random.Random) -> None:
    """It seems about to fail, or people keep it out, and it is examined: the one is no matter of
    the other. That it was sick is over where another of that name has come."""
    course = Course(chance, "act")
    job = course.trains()
    name = job.names[4]
    people = chance.random() < 0.4
    fails = chance.random() < 0.6
    if fails:
        job.agent_says(name, m.Sign(symptom="gpu", line="Xid 79"))
    if people:
        job.hear(CordonRequested(at_us=job.now_us, request="c", machine=name, reason="dust"))
    before = "dust" if people else "about to fail: a GPU is broken: Xid 79" if fails else ""
    for sick in chance.sample((True, False, True), 3):
        job.hear(HealthRequested(at_us=job.now_us, request="h", machine=name))
        course.ordered()
        course.answer(name, sick=sick)
        if not people:
            before = f"not fit: {SICK}" if sick else before
            before = before.replace(f"not fit: {SICK}", "about to fail" if fails else "", not sick)
        course.is_kept_out(name, before)
        cordon = job.job.cordoned.get(name)
        known = (cordon.failing, cordon.spared) if cordon is not None else (False, False)
        if known != (fails, fails and not people and not sick):
            raise Violation(f"{name} fails: {fails}, sick: {sick}, people: {people}: {cordon}")
    course.lose(name)
    job.hear(MachineJoined(at_us=job.now_us, machine=name, standby=True, vault="v", host="h"))
    course.joined.remove(name)
    course.joined.append(name)
    course.ordered()
    course.is_kept_out(name, before if people or (fails and not sick) else WAITS)


def play(chance: random.Random) -> None:
    """One of them."""
    chance.choice(
        (_all_begin, _one_joins, _somebody_asks, _several_at_once, _sick_and_lost, _also_otherwise)
    )(chance)
