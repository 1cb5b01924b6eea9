"""Workers of one machine tell their steps in one fact, and nothing else waits for that."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmover.agent.config import AgentConfig
from trainmover.agent.workers.crew import Crew
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m


class Up:
    """Writes down what is said."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.tell = self.said.append

    def say(self, fact: m.AgentFact) -> None:
        """As the link does, to the bytes."""
        read = m.decode_agent_fact(m.encode(fact))
        if isinstance(read, m.FromWorker):
            self.said.append((read.local_rank, m.decode_worker_fact(read.payload)))
        else:
            self.said.append(read)

    def clogged(self) -> bool:
        return False


@pytest.fixture
def up() -> Up:
    return Up()


@pytest.fixture
def play(tmp_path: Path, up: Up) -> Callable[[Callable[[Crew], Any]], None]:
    def on_loop(act: Callable[[Crew], Any]) -> None:
        async def run() -> None:
            config = AgentConfig(
                controller="", machine=MachineId("m1"), nproc=3, standby=False, token_file=tmp_path
            )
            done = act(Crew(config, tmp_path, "127.0.0.1", up))
            if done is not None:
                await done

        asyncio.run(run())

    return on_loop


def steps(rank: int, *numbers: int, first: bool = False) -> m.Committed:
    rows = [m.Row(step=Step(one), at_us=7, values={"loss": 0.1 * rank}) for one in numbers]
    return m.Committed(rank=Rank(rank), epoch=Epoch(2), rows=rows, first=first)


def committed(*told: m.Committed) -> m.CommittedHere:
    return m.CommittedHere(told=m.columns_of(told))


def said(crew: Crew, local_rank: int, fact: m.WorkerFact) -> None:
    crew._said(local_rank, m.encode(fact))


def test_when_all_have_told_it_is_said_at_once(play: Any, up: Up) -> None:
    told = [steps(rank, 4, 5) for rank in (6, 7, 8)]

    def act(crew: Crew) -> None:
        for local_rank, fact in enumerate(told):
            assert up.said == []
            said(crew, local_rank, fact)
        assert up.said == [committed(*told)]

    play(act)


def test_nobody_is_waited_for_long(play: Any, up: Up) -> None:
    async def wait() -> None:
        while not up.said:
            await asyncio.sleep(0.001)

    def act(crew: Crew) -> Any:
        said(crew, 0, steps(6, 4))
        return wait()

    play(act)
    assert up.said == [committed(steps(6, 4))]


def position(rank: int, epoch: int = 3) -> m.Position:
    return m.Position(rank=Rank(rank), epoch=Epoch(epoch), committed=Step(4), gate=Step(5))


def test_what_follows_steps_is_said_behind_them(play: Any, up: Up) -> None:
    """A decision may hang on it; who knows of it must know of the steps before."""
    alone = m.Interrupted(rank=Rank(7), epoch=Epoch(2), reason="reset")

    def act(crew: Crew) -> None:
        said(crew, 0, steps(6, 4))
        said(crew, 0, position(6))
        said(crew, 1, alone)
        said(crew, 2, steps(8, 5))
        crew.end(9, then=lambda: None)

    play(act)
    before = [committed(steps(6, 4)), m.SaidHere(told=[position(6)])]
    assert up.said == [*before, (1, alone), committed(steps(8, 5))]


def test_answers_of_one_kind_for_one_epoch_are_one_fact(play: Any, up: Up) -> None:
    answers = [position(rank) for rank in (6, 7, 8)]

    def act(crew: Crew) -> None:
        said(crew, 2, steps(8, 4))
        for local_rank, fact in enumerate(answers):
            assert up.said == []
            said(crew, local_rank, fact)

    play(act)
    assert up.said == [committed(steps(8, 4)), m.SaidHere(told=answers)]


@pytest.mark.parametrize(
    "other",
    [position(7, epoch=4), m.AtBoundary(rank=Rank(7), epoch=Epoch(3), committed=Step(4))],
)
def test_an_answer_of_another_kind_or_epoch_goes_behind(
    play: Any, up: Up, other: m.WorkerFact
) -> None:
    def act(crew: Crew) -> None:
        said(crew, 0, position(6))
        said(crew, 1, other)
        crew.end(9, then=lambda: None)

    play(act)
    assert up.said == [m.SaidHere(told=[position(6)]), m.SaidHere(told=[other])]


def test_steps_that_a_rank_tells_after_its_answer_go_behind_it(play: Any, up: Up) -> None:
    first = steps(6, 5, first=True)

    def act(crew: Crew) -> None:
        said(crew, 0, first)
        said(crew, 1, steps(7, 4))
        said(crew, 0, steps(6, 6))
        crew.end(9, then=lambda: None)

    play(act)
    before = [committed(steps(7, 4)), m.SaidHere(told=[first])]
    assert up.said == [*before, committed(steps(6, 6))]


def test_a_fast_worker_does_not_wait_for_a_slow_one_twice(play: Any, up: Up) -> None:
    def act(crew: Crew) -> None:
        for step in (4, 5):
            said(crew, 0, steps(6, step))
        said(crew, 1, steps(7, 4))
        assert up.said == []
        said(crew, 2, steps(8, 4))

    play(act)
    (together,) = up.said
    assert [(one.ranks, one.steps) for one in together.told] == [([6, 7, 8], [4]), ([6], [5])]
