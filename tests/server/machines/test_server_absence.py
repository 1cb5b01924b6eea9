"""Who is away, and what is evidence that a machine is lost: as values, beat by beat."""

from dataclasses import dataclass, replace
from typing import cast

import pytest
from absence_jobs import JOB, JOB_OF_TWO_STANDBYS, job

from trainmover.controller.facts import Facts
from trainmover.controller.state import Cut, Job
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.deadlines import (
    AWAY_S,
    BEAT_S,
    LEASE_MORE_S,
    PATIENCE_S,
    SPARE_S,
    TOGETHER_S,
    beats,
)
from trainmover.protocol.messages import Recorded
from trainmover.server.machines.absence import LINK_ENDED, Absence, Dialled
from trainmover.server.surroundings import Link

M1, M2, M3, M4 = map(MachineId, ("m1", "m2", "m3", "m4"))


@dataclass
class Silent:
    quiet_ticks: int = 0
    heard_us: int = 0
    relay: MachineId | None = None


class Beats:
    """silent: machines of which nothing is heard; who trains commits a step at every beat."""

    def __init__(self, *silent: MachineId, links: tuple[MachineId, ...] = (M1, M2, M3, M4)) -> None:
        self.absence = Absence(PATIENCE_S)
        self.links = {name: Silent() for name in links}
        self.silent: tuple[MachineId, ...] = ()
        self.step = 0
        self.beat(5, trains=True)
        self.silent = silent

    def train(self) -> None:
        self.step += 1
        self.absence.steps.committed(Epoch(1), Step(self.step))

    def beat(self, count: int = 1, *, trains: bool = False, job: Job = JOB) -> list[str]:
        """What is known of the lost after so many beats."""
        lost: list[str] = []
        for _ in range(count):
            if trains:
                self.train()
            for name, link in self.links.items():
                link.quiet_ticks = link.quiet_ticks + 1 if name in self.silent else 0
            self.absence.listen(cast("dict[MachineId, Link]", self.links))
            lost += [f"{one.machine}: {one.why}" for one in self.absence.lost(job)]
        return lost

    def ask(self, *reached: MachineId, of: MachineId = M1, job: Job = JOB) -> list[MachineId]:
        fresh = {name for name, link in self.links.items() if not link.quiet_ticks}
        for _ in range(4):
            if asked := self.absence.witnesses(job, fresh):
                break
        self.absence.found(of, self.absence.number, reached)
        return asked


def test_who_is_silent_is_away_and_is_not_lost_while_steps_are_committed() -> None:
    play = Beats(M2)
    play.beat(2)
    play.ask()
    play.absence.dialled(M2, Dialled.UNREACHED)
    assert play.beat(beats(PATIENCE_S), trains=True) == []
    assert play.absence.away == [M2]


def test_what_dialling_finds_is_certain_only_of_whom_no_link_is_left() -> None:
    """Thousands may be silent for a moment: nothing is looked through for each."""
    play = Beats(M2, links=(M1, M2, M4))
    play.beat(2)
    play.absence.broke(M3, LINK_ENDED, 7)
    assert not play.absence.dialled(M2, Dialled.REFUSED)
    assert play.absence.dialled(M3, Dialled.ANSWERED)
    assert not play.absence.dialled(M4, Dialled.REFUSED)


def test_who_holds_the_others_up_and_is_reached_by_nobody_is_lost() -> None:
    play = Beats(M2)
    play.beat(2)
    play.absence.dialled(M2, Dialled.UNREACHED)
    play.ask()
    assert play.beat(beats(AWAY_S) - 2) == [
        "m2: no heartbeat, and neither the controller nor m1 reaches it; no step is committed"
    ]


def test_who_holds_the_others_up_is_waited_for_where_the_job_would_end_without_it() -> None:
    """Its only standby is not reached either: what is a blip for both must not end the job."""
    play = Beats(M2, M4)
    play.beat(2)
    for name in (M2, M4):
        play.absence.dialled(name, Dialled.UNREACHED)
    play.ask()
    assert play.beat(beats(SPARE_S) - 3) == []
    assert play.absence.news(4)[-1] == (
        "no step is committed, and m2 is not given up: the job would end, for no machine can take "
        "the ranks. The job waits for it, up to 60 s (--patience)"
    )
    assert play.absence.news(4) == []
    assert [text[:3] for text in play.beat()] == ["m4:"], "it has no ranks"
    assert play.beat(beats(PATIENCE_S), job=job(0)) == []
    lost = play.beat(beats(LEASE_MORE_S), job=job(0))
    assert lost[:1] == ["m2: it was away for 65 s (--patience)"]


@pytest.mark.parametrize("wait_s", [0, 5])
def test_a_job_without_standbys_gives_nobody_up_though_it_may_wait_for_machines(
    wait_s: int,
) -> None:
    """The machine may be back before another one comes; once one has come it is given up."""
    alone = job(0, wait_s=wait_s)
    play = Beats(M2, links=(M1, M2, M3))
    play.beat(2, job=alone)
    play.absence.dialled(M2, Dialled.UNREACHED)
    play.ask(job=alone)
    assert play.beat(beats(AWAY_S) - 2, job=alone) == []
    assert [text[:3] for text in play.beat(job=job(1, wait_s=wait_s))] == ["m2:"]


@pytest.mark.parametrize("who", ["the controller", "a witness", "nobody was asked"])
def test_who_is_reached_by_anybody_is_waited_for(who: str) -> None:
    play = Beats(M2)
    play.beat(2)
    what = Dialled.ANSWERED if who == "the controller" else Dialled.UNREACHED
    play.absence.dialled(M2, what)
    if who != "nobody was asked":
        play.ask(*([M2] if who == "a witness" else []))
    assert play.beat(beats(PATIENCE_S)) == []
    assert play.beat(beats(6.0))[:1] == ["m2: it was away for 65 s (--patience)"]


def test_a_witness_speaks_only_of_whom_it_was_asked_about() -> None:
    play = Beats(M2)
    play.beat(2)
    play.ask()
    number = play.absence.number
    play.silent = (M2, M3)
    play.beat(2)
    play.absence.found(M1, number, [])
    assert play.absence.quiet[M3].seen == {}


def test_standbys_that_nobody_reaches_go_with_those_who_hold_ranks() -> None:
    """Or else one of them would be taken in their place."""
    play = Beats(M2, M4)
    play.beat(2)
    for name in (M2, M4):
        play.absence.dialled(name, Dialled.UNREACHED)
    play.ask(job=JOB_OF_TWO_STANDBYS)
    assert [text[:3] for text in play.beat(3, job=JOB_OF_TWO_STANDBYS)] == ["m2:", "m4:"]


def test_who_falls_silent_a_beat_later_is_asked_for_at_once_and_goes_with_the_first() -> None:
    """Machines of one rack were heard last at different moments."""
    play = Beats(M2)
    play.beat(1)
    play.silent = (M2, M3)
    play.beat(1)
    assert play.ask() != []
    assert play.absence.witnesses(JOB, {M1, M4}) == []
    play.beat(1)
    assert play.absence.witnesses(JOB, {M1, M4}) != []
    for name in (M2, M3):
        play.absence.dialled(name, Dialled.UNREACHED)
    play.absence.found(M1, play.absence.number, [])
    kept = replace(JOB_OF_TWO_STANDBYS, keepers=dict.fromkeys(map(Slot, range(3)), (M1,)))
    assert play.beat(beats(AWAY_S) - 3, job=kept) == []
    assert [text[:2] for text in play.beat(job=kept)] == ["m2", "m3"]


def test_two_that_keep_each_others_records_are_waited_for_where_the_job_would_end() -> None:
    """Two standbys could take the ranks, but nobody would have what they held."""
    play = Beats(M2, M3)
    play.beat(2)
    for name in (M2, M3):
        play.absence.dialled(name, Dialled.UNREACHED)
    play.ask(job=JOB_OF_TWO_STANDBYS)
    assert play.beat(beats(SPARE_S), job=JOB_OF_TWO_STANDBYS) == []
    assert "the record of rank 1 would be lost as well" in play.absence.news(5)[-1]


@pytest.mark.parametrize(("steps", "waits_s"), [(4, 0.0), (20, 2.0)])
def test_steps_made_again_are_a_price_that_is_waited_for(steps: int, waits_s: float) -> None:
    """All would go back to a snapshot: so long as that costs, the machine may be back."""
    play = Beats(M2)
    workers = {Rank(rank): f"w{rank}" for rank in range(3)}
    vaults = {Rank(0): "vm1", Rank(1): "vm3", Rank(2): "vm1"}
    cut = Cut(Step(play.step - steps), vaults, workers, 1, 1)
    alone = replace(JOB, recorded=Facts(), cut=cut)
    digests = (
        Recorded(rank=Rank(r), step=Step(3), trace="t", digest=f"d{r}", bytes=1) for r in range(3)
    )
    alone = replace(alone, recorded=Facts({one.rank: one for one in digests}))
    play.beat(2, job=alone)
    play.absence.dialled(M2, Dialled.UNREACHED)
    play.ask(job=alone)
    beats_more = 0
    while not play.beat(job=alone):
        beats_more += 1
    assert beats_more * BEAT_S >= waits_s


def test_who_falls_silent_later_and_is_not_known_of_in_time_is_another_loss() -> None:
    play = Beats(M2)
    play.beat(2)
    play.absence.dialled(M2, Dialled.UNREACHED)
    play.ask()
    play.beat(beats(AWAY_S) - 5)
    play.silent = (M2, M3)
    assert play.beat(2 + beats(TOGETHER_S)) == []
    assert [text[:2] for text in play.beat()] == ["m2"]


def test_who_is_reached_by_somebody_is_not_waited_for_by_a_loss() -> None:
    play = Beats(M2, M3)
    play.beat(2)
    play.absence.dialled(M2, Dialled.UNREACHED)
    play.absence.dialled(M3, Dialled.UNREACHED)
    play.ask(M3)
    assert [text[:2] for text in play.beat(beats(AWAY_S) - 2)] == ["m2"]


def test_a_standby_that_nobody_reaches_is_lost_later() -> None:
    play = Beats(M4)
    play.beat(2)
    play.absence.dialled(M4, Dialled.UNREACHED)
    play.ask()
    assert play.beat(beats(SPARE_S) - 3, trains=True) == []
    assert len(play.beat(1, trains=True)) == 1


def test_whose_link_has_ended_is_lost_once_its_host_refuses() -> None:
    play = Beats()
    del play.links[M2], play.links[M3]
    for name in (M2, M3):
        play.absence.broke(name, LINK_ENDED, 7)
    assert play.absence.to_dial() == [M2, M3]
    play.absence.dialled(M2, Dialled.REFUSED)
    assert play.absence.certain() == [], "the other may have ended with it"
    play.absence.dialled(M3, Dialled.ANSWERED)
    (lost,) = play.absence.certain()
    assert (lost.machine, lost.why, lost.heard_us) == (M2, "its agent has ended", 7)
    assert play.absence.to_dial() == [M3], "it is looked for again"


def test_a_silent_host_that_refuses_proves_nothing_alone() -> None:
    """Its link would have ended, if it had been reached."""
    play = Beats(M2)
    play.beat(2)
    play.absence.dialled(M2, Dialled.REFUSED)
    assert play.absence.certain() == []
    assert play.beat(20) == []


def test_if_most_are_away_the_controller_suspects_itself() -> None:
    play = Beats(M1, M2, M3)
    play.beat(beats(AWAY_S))
    lines = play.absence.news(4)
    assert lines[:3] == [
        f"{name} is away (silent for 1 s): its ranks train on, and it may return"
        for name in (M1, M2, M3)
    ]
    assert "3 of 4 machines are away at once: the controller suspects its own" in lines[3]
    assert play.absence.news(4) == []


def test_machines_beside_it_are_asked() -> None:
    play = Beats(M2)
    play.beat(2)
    assert play.ask() == [M3, M1, M4]


def test_how_long_a_step_takes_is_learned() -> None:
    play = Beats(M2)
    for _ in range(20):
        play.train()
        play.beat(8)
        play.absence.quiet.clear()
        play.links[M2].quiet_ticks = 0
    play.train()
    play.beat(8)
    play.absence.dialled(M2, Dialled.UNREACHED)
    play.ask()
    assert play.beat(7) == []
    assert len(play.beat(3)) == 1
