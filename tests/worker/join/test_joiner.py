"""Whom the script's calls reach: the run in the sandbox, the way to where the rank stood, or the
member."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.ids import Epoch, Rank, Step
from trainmover.worker.join.joiner import Joiner
from trainmover.worker.join.way.journey import Journey
from trainmover.worker.join.way.way import Way
from trainmover.worker.standing import Unwind
from trainmover.worker.step.keeper import Moment, RankRecord


class Run:
    """A joiner whose parts only say what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        kinds = SimpleNamespace(of=lambda function: None)
        unused = {"tracked": None, "standing": None, "say": None, "kinds": kinds}
        entered = SimpleNamespace(enter=lambda batches: None)
        known = {"is_shadow": True, "in_step": False, "steps": 9, "rank": 1, "loops": entered}
        known |= {"let_go": lambda: None, "script_graph": None}
        self.member = self._part("member run_step fetch take_next", **known, **unused)
        refusal = SimpleNamespace(fails=self._fails)
        known = {"member": self.member, "steps": 2, "is_done": False}
        known |= {"tries": None, "refusal": refusal, "bound_for": Epoch(2)}
        self.shadow = self._part("shadow run_step take_next park unwind_if_over", **known)
        self.joiner = Joiner(self.shadow, b"")
        self.takeover: Any = SimpleNamespace(journey=None, stand=lambda: None)
        self.joiner.takeover = self.takeover

    def _part(self, words: str, **known: Any) -> Any:
        """Of these words the first is its name, the others are what it may be asked for."""
        name, *verbs = words.split()

        def answer(verb: str) -> Callable[..., torch.Tensor]:
            def asked(*_: Any) -> torch.Tensor:
                self.asked.append(f"{name} {verb}")
                return torch.tensor(0.5)

            return asked

        return SimpleNamespace(**{verb: answer(verb) for verb in verbs}, **known)

    def travel(self) -> None:
        self.takeover.journey = self._part("journey pass_over fetch")

    def step(self) -> list[str]:
        before = len(self.asked)
        self.joiner.run_step(lambda: None, (), {})
        return self.asked[before:]

    def fetch(self) -> list[str]:
        before, batches = len(self.asked), SimpleNamespace()
        self.joiner.fetch(batches)  # type: ignore[arg-type]
        return self.asked[before:]

    def _fails(self, error: StateMismatch) -> NoReturn:
        self.asked.append(f"refused: {error.happened}")
        raise Unwind

    def _arrive(self) -> None:
        self.asked.append("journey arrives")
        self.takeover.journey, self.member.is_shadow = None, False


def test_steps_go_to_the_sandbox_then_the_way_then_the_member() -> None:
    run = Run()
    assert run.step() == ["shadow run_step"]
    run.travel()
    assert run.step() == ["journey pass_over"]
    run._arrive()
    assert run.step() == ["member run_step"]


def test_a_step_within_a_step_is_part_of_it() -> None:
    run = Run()
    run.member.in_step = True
    assert run.step() == ["member run_step"]


def test_a_run_parks_at_the_fetch_behind_its_last_shadow_step() -> None:
    run = Run()
    assert run.fetch() == ["shadow unwind_if_over", "shadow take_next"]
    run.shadow.is_done = True
    run.takeover.begin = lambda bound_for: run.travel()
    assert run.fetch() == ["shadow unwind_if_over", "shadow park", "journey fetch"]
    assert run.fetch() == ["journey fetch"]


def test_who_stands_where_the_rank_stood_draws_as_the_member_at_once() -> None:
    run = Run()
    run.shadow.is_done = True
    run.takeover.begin = lambda bound_for: run._arrive()
    asked = ["shadow unwind_if_over", "shadow park", "journey arrives", "member take_next"]
    assert run.fetch() == asked
    assert run.fetch() == ["member fetch"]


def test_a_warm_up_tries_the_way_and_an_error_of_ours_there_refuses_the_rank() -> None:
    run = Run()
    there = run.shadow.tries = RankRecord(Step(9), [], Moment(b"", {}))
    run.shadow.is_done, run.shadow.park = True, lambda: there
    run.takeover.try_way = lambda shadow, there: run.travel()
    assert run.fetch() == ["shadow unwind_if_over", "shadow unwind_if_over", "journey fetch"]
    assert run.step() == ["shadow unwind_if_over", "journey pass_over"]

    def other_batch(batches: Any) -> None:
        raise StateMismatch("another batch", means="", do="")

    run.takeover.journey.fetch = other_batch
    with pytest.raises(Unwind):
        run.fetch()
    assert run.asked[-1] == "refused: another batch"


def test_shadow_steps_are_counted_until_it_is_live() -> None:
    run = Run()
    assert run.joiner.steps == 2
    run.member.in_step = True
    assert run.joiner.steps == 1
    run.member.is_shadow = False
    assert run.joiner.steps == 9


def test_steps_in_loops_that_are_passed_by_are_made_up_and_none_follows_the_last_fetch() -> None:
    member: Any = SimpleNamespace(calls=Step(3))
    places: list[list[Any]] = [[1, {}, b"", 7, [], []]]
    way = Way(Rank(1), RankRecord(Step(8), places, Moment(b"", {})))
    refusal: Any = SimpleNamespace()
    journey = Journey(member, way, arrive=lambda: None, refusal=refusal, number=0.25)
    assert journey.pass_over(torch.empty((), device="meta")).item() == 0.25
    assert member.calls == 3
    way.reached = 1
    with pytest.raises(StateMismatch, match="makes a step where rank 1 had fetched"):
        journey.pass_over(None)
