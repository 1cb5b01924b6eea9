"""When a rank's record ends, and when it is shared: ranks need not fetch in the same places."""

from typing import Any

import pytest
import torch

from trainmover.comm import Drained, Groups
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Warned
from trainmover.sandbox.binding import binding_of
from trainmover.sandbox.recorder import Recorder
from trainmover.state.tracked import Tracked
from trainmover.worker.keep import first_steps
from trainmover.worker.keep.first_steps import STEPS_MAX, Recording


class Gate:
    """Of rank 0 of two: `other` is what the other one gives; None: the epoch ends."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.other: int | None = 1

    def gather(self, mine: Any) -> Any:
        self.asked.append(int(mine))
        if self.other is None:
            raise Drained("the epoch has ended")
        return torch.tensor([int(mine), self.other])


class Fixture:
    def __init__(self) -> None:
        self.gate, self.said = Gate(), list[Any]()
        nobody: Any = None
        gate: Any = self.gate
        self.recording = Recording(
            Rank(0), 1, tracked=Tracked(), gate=gate, keeper=nobody, say=self.said.append
        )
        binding = binding_of([__file__], module=False, world_size=2, nproc=1)
        self.recorder = self.recording.recorder = Recorder(0, binding)

    def step(self, step: int, *, fetches: bool = True) -> bool:
        """Fetch and make a step: whether the record is to be finished behind it."""
        if fetches:
            self.recording.fetched(Step(step - 1))
        self.recording.begin_step()
        return self.recording.end_step(Step(step), updated=True)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    own = Groups()
    own.epoch = 1
    monkeypatch.setattr(first_steps, "groups", own)
    return own


@pytest.fixture
def rank(groups: Groups) -> Fixture:
    return Fixture()


def test_it_ends_at_the_fetch_behind_the_third_step_and_is_shared_behind_the_fourth(
    rank: Fixture,
) -> None:
    assert [rank.step(step) for step in (1, 2, 3)] == [False] * 3
    assert not rank.recorder.closed
    rank.recording.fetched(Step(3))
    assert rank.recorder.closed
    assert rank.gate.asked == []  # A rank that fetches alone must not wait for others.
    assert rank.step(4)


def test_a_rank_that_has_fetched_waits_for_one_that_has_not(rank: Fixture) -> None:
    rank.gate.other = 0
    assert not any(rank.step(step) for step in range(1, 8))
    rank.gate.other = 1
    assert rank.step(8)
    assert rank.gate.asked == [1] * 5


def test_steps_that_share_a_fetch_are_recorded_together(rank: Fixture) -> None:
    assert not rank.step(3)
    assert not rank.step(4, fetches=False)
    assert not rank.recorder.closed
    assert rank.step(5)
    assert rank.recorder.finish().steps == 4


def test_who_was_interrupted_asks_nobody_any_more(rank: Fixture, groups: Groups) -> None:
    rank.gate.other = None
    assert not rank.step(4, fetches=False)
    groups.epoch = 2  # Whoever has joined records nothing, and would not answer.
    assert not rank.step(5, fetches=False)
    assert rank.step(6)
    assert rank.gate.asked == [0]


def test_without_any_fetch_it_ends_and_says_so(rank: Fixture) -> None:
    assert not rank.step(STEPS_MAX - 1, fetches=False)
    assert rank.step(STEPS_MAX, fetches=False)
    (warned,) = rank.said
    assert isinstance(warned, Warned)
    assert "without coming to a fetch" in warned.text
