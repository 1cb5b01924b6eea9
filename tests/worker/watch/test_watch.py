"""The watch, look by look, on a rank that does as it is told."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trainmover.protocol.messages import Moves, Stands, Watched, WorkerFact
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.watch import watch as watching
from trainmover.worker.watch.deadline import BEFORE_S, FLOOR_S, STEPS_MIN
from trainmover.worker.watch.footing import OUTSIDE, PATIENT, QUICK, Footing, Pulse
from trainmover.worker.watch.sight import Sight
from trainmover.worker.watch.watch import LOOK_S, Watch

FLOOR_LOOKS = round(FLOOR_S / LOOK_S) + 1


def train_step() -> None: ...


def evaluate() -> None: ...


class Rank:
    """One rank, the watch that looks at it, and what that has said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[WorkerFact] = []
        self.sight = Sight("script", place="train.py line 33")
        self.counts: dict[str, int] = {}
        self.bytes = 0
        self.groups = SimpleNamespace(
            positions=lambda: self.counts,
            received=lambda: self.bytes,
            unfinished=False,
            draining=False,
        )
        monkeypatch.setattr(watching, "groups", self.groups)
        monkeypatch.setattr(watching, "look", lambda thread: self.sight)
        self.pulse = Pulse()
        self.standing = GuardedStanding(live=True)
        self.member: Any = SimpleNamespace(
            rank=1, standing=self.standing, calls=0, in_step=False, passed=False, over=False,
            declared=[], footing=Footing(self.pulse), boundary=SimpleNamespace(closing=False),
        )  # fmt: skip
        self.watch = Watch(lambda: self.member, self.said.append, self.pulse, false_alarms=1.0)

    def steps(self, count: int, function: Any = train_step, step_s: float = 0.01) -> None:
        """Make so many, and stand in the one after them."""
        for _ in range(count):
            self.member.footing.enter(function)
            self.member.footing._begun_ns -= round(step_s * 1e9)
            self.member.footing.undisturbed()
            self.member.footing.leave()
            self.member.calls += 1
            self.watch.look()
        self.enter(function)

    def enter(self, function: Any = train_step) -> None:
        self.member.in_step = True
        self.member.footing.enter(function)
        self.watch.look()

    def leave(self) -> None:
        self.member.in_step = False
        self.member.footing.leave()
        self.watch.look()

    def stand(self, looks: int = FLOOR_LOOKS) -> list[Stands]:
        """What it says of itself while it stands for so long."""
        before = len(self.said)
        for _ in range(looks):
            self.watch.look()
        return [fact for fact in self.said[before:] if isinstance(fact, Stands)]

    def stand_receiving(self, bytes_a_look: int, looks: int) -> list[Stands]:
        """As `stand`, while a call goes on."""
        said: list[Stands] = []
        for _ in range(looks):
            self.bytes += bytes_a_look
            said += self.stand(1)
        return said


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    rank = Rank(monkeypatch)
    yield rank
    assert len({id(fact) for fact in rank.said}) == len(rank.said)


def test_a_large_call_over_a_slow_network_is_no_standstill(rank: Rank) -> None:
    """A megabyte a second."""
    rank.steps(100)
    rank.sight = Sight("call", "all_reduce of group world")
    assert rank.stand_receiving(100_000, 5 * FLOOR_LOOKS) == []
    assert len(rank.stand()) == 1


def test_what_came_before_it_stood_does_not_count(rank: Rank) -> None:
    rank.steps(100)
    rank.bytes += 100_000_000
    rank.counts = {"world": 1}
    rank.watch.look()
    rank.sight = Sight("call", "all_reduce of group world")
    assert len(rank.stand(FLOOR_LOOKS)) == 1


def test_what_waits_tell_each_other_is_no_progress(rank: Rank) -> None:
    rank.steps(100)
    rank.sight = Sight("call", "all_reduce of group world")
    assert len(rank.stand_receiving(64 * 10, FLOOR_LOOKS)) == 1


def test_who_stands_says_so_once_and_says_when_it_moves(rank: Rank) -> None:
    rank.steps(100)
    (fact,) = rank.stand()
    assert (fact.where, fact.place, fact.step) == ("script", "train.py line 33", 100)
    assert fact.still_ms > 1000 * FLOOR_S - 1
    assert rank.stand(100) == []
    rank.counts = {"world": 1}
    rank.watch.look()
    assert rank.said[-1] == Moves(rank=1, epoch=0)


def test_a_collective_begun_is_a_movement(rank: Rank) -> None:
    rank.steps(100)
    for count in range(100):
        rank.counts = {"world": count}
        assert rank.stand(2) == []


def test_another_place_is_told_anew(rank: Rank) -> None:
    rank.steps(100)
    rank.stand()
    rank.sight = Sight("call", "the gate")
    (fact,) = rank.stand(10)
    assert (fact.where, fact.call) == ("call", "the gate")


def test_first_steps_may_take_a_minute(rank: Rank) -> None:
    rank.steps(STEPS_MIN - 1)
    assert rank.stand(round(BEFORE_S / LOOK_S) - 5) == []
    assert len(rank.stand(10)) == 1


def test_between_two_steps_a_minute_is_allowed_or_more_if_that_was_so(rank: Rank) -> None:
    rank.steps(100)
    rank.leave()
    assert rank.stand(590) == []
    assert len(rank.stand(20)) == 1
    assert rank.stand(190) == []  # It took 80 s.
    rank.enter()
    rank.leave()
    assert rank.stand(1190) == []
    assert len(rank.stand(20)) == 1


def test_each_function_has_a_deadline_of_its_own(rank: Rank) -> None:
    rank.steps(100)
    rank.leave()
    rank.enter(evaluate)
    assert rank.stand(500) == []
    rank.leave()
    rank.steps(0)
    assert len(rank.stand()) == 1


def test_what_the_script_declared_may_take_as_long_as_it_likes(rank: Rank) -> None:
    rank.steps(100)
    rank.member.declared = ["evaluation"]
    assert rank.stand(1000) == []
    told = [fact for fact in rank.said if isinstance(fact, Watched)]
    assert (told[-1].deadline_ms, told[-1].paused) == (0, "evaluation")
    rank.member.declared = []
    assert len(rank.stand(FLOOR_LOOKS + 1)) == 1


def test_declared_time_and_waiting_are_not_learned(rank: Rank) -> None:
    rank.steps(200)
    rank.member.declared = ["evaluation"]
    rank.stand(3)
    rank.member.declared = []
    rank.leave()
    rank.steps(1, step_s=20.0)
    assert len(rank.stand()) == 1
    rank.sight = Sight("call", "the gate")
    rank.stand(10)
    rank.leave()
    rank.steps(1, step_s=30.0)
    assert len(rank.stand()) == 1
    rank.sight = Sight("script")
    rank.leave()
    rank.steps(1)
    rank.steps(1, step_s=5.0)
    assert rank.stand() == []  # Its own: now that is known to happen.


def test_who_compiles_stands_with_good_reason(rank: Rank) -> None:
    rank.steps(100)
    rank.sight = Sight("compile")
    assert rank.stand(1000) == []


def test_a_change_of_members_holds_all_but_who_is_in_its_script(rank: Rank) -> None:
    rank.steps(100)
    rank.standing.ordered = 1
    for where in ("runtime", "call"):
        rank.sight = Sight(where)
        assert rank.stand(50) == []
    rank.sight = Sight("script")
    assert len(rank.stand(10)) == 1


@pytest.mark.parametrize("name", ["over", "closing", "not live", "no run"])
def test_nobody_looks_at_a_rank_that_is_none_or_is_done(rank: Rank, name: str) -> None:
    rank.steps(100)
    rank.member.over = name == "over"
    rank.member.boundary.closing = name == "closing"
    rank.standing.live = name != "not live"
    if name == "no run":
        rank.member = None
    assert rank.stand(1000) == []


def test_a_wait_in_cpp_is_a_wait(rank: Rank) -> None:
    rank.steps(100)
    rank.groups.unfinished = True
    (fact,) = rank.stand()
    assert fact.where == "call"


def test_the_deadline_is_told_when_it_changes(rank: Rank) -> None:
    rank.steps(200)
    told = [fact.deadline_ms for fact in rank.said if isinstance(fact, Watched)]
    assert told == [1000 * BEFORE_S, 1000 * FLOOR_S]


def test_the_pulse_counts_looks_and_says_whether_the_rank_is_in_a_step(rank: Rank) -> None:
    rank.enter()
    assert rank.pulse.bytes[0] == PATIENT
    rank.steps(100)
    assert rank.pulse.bytes[0] == QUICK
    before = bytes(rank.pulse.bytes[8:])
    rank.leave()
    assert rank.pulse.bytes[0] == OUTSIDE
    assert bytes(rank.pulse.bytes[8:]) != before
