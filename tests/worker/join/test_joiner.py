"""Whom the script's calls reach: the run in the sandbox, the way to where the rank stood, or the
member."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Row
from trainmover.worker.data.inputs import hash_of
from trainmover.worker.join.joiner import Joiner
from trainmover.worker.join.refusal import Refusal
from trainmover.worker.join.way.journey import Journey
from trainmover.worker.join.way.way import Way
from trainmover.worker.join.written import Written
from trainmover.worker.standing import Unwind
from trainmover.worker.step.keeper import Begun, Moment, RankRecord, row_bytes

PUTS = {"pass_over": lambda counts: None, "put_back": lambda: None}


class Run:
    """A joiner whose parts only say what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        kinds = SimpleNamespace(of=lambda function: (None, set()))
        counts = SimpleNamespace(counts=SimpleNamespace(of=lambda *_: []))
        unused = {"tracked": None, "standing": None, "say": None, "kinds": kinds}
        unused |= {"variables": counts}
        entered = SimpleNamespace(enter=lambda batches: None)
        known = {"is_shadow": True, "in_step": False, "steps": 9, "rank": 1, "loops": entered}
        self.member = self._part("member run_step fetch take_next", **known, **unused)
        refusal = SimpleNamespace(fails=self._fails)
        known = {"member": self.member, "steps": 2, "is_done": False}
        known |= {"tries": None, "refusal": refusal, "written": Written()}
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

    def travel(self, *, passes_over: bool) -> None:
        known = {"passes_over": passes_over, "begin_step": self._arrive}
        known["compare_inputs"] = lambda *_: None
        self.takeover.journey = self._part("journey pass_over fetch", **known)

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
    run.travel(passes_over=True)
    assert run.step() == ["journey pass_over"]
    run.travel(passes_over=False)
    assert run.step() == ["journey arrives", "member run_step"]
    assert run.step() == ["member run_step"]


def test_a_step_within_a_step_is_part_of_it() -> None:
    run = Run()
    run.member.in_step = True
    assert run.step() == ["member run_step"]


def test_a_run_parks_at_the_fetch_behind_its_last_shadow_step() -> None:
    run = Run()
    assert run.fetch() == ["shadow unwind_if_over", "shadow take_next"]
    run.shadow.is_done = True
    run.takeover.begin = lambda bound_for: run.travel(passes_over=True)
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
    there = run.shadow.tries = RankRecord(Step(9), False, Step(9), [], Moment(b"", {}), None)
    run.shadow.is_done, run.shadow.park = True, lambda: there
    run.takeover.try_way = lambda shadow, there: run.travel(passes_over=True)
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


@pytest.mark.parametrize(
    ("number", "own", "refused"), [(5, 1.0, False), (5, 2.0, True), (0, 2.0, False)]
)
@pytest.mark.parametrize("passed", [0, 1])
def test_a_step_that_follows_others_must_be_called_as_on_the_rank(
    number: int, own: float, refused: bool, passed: int
) -> None:
    """Lines between the fetch and the first step have run on what that step has changed."""
    small = SimpleNamespace(load_small=lambda _, **more: None, small_states=dict)
    draws = SimpleNamespace(begin_step=lambda: None, end_step=lambda: None)
    member: Any = SimpleNamespace(calls=Step(4 - passed), draws=draws, tracked=small)
    inputs = [number - passed, hash_of((torch.ones(2),), {})] if number else []
    record = RankRecord(Step(5), False, Step(3), [], Moment(b"", {}), None, inputs=inputs)
    journey = Journey(
        member,
        Way(Rank(1), record, Step(4)),
        closing=False,
        arrive=lambda: None,
        refusal=SimpleNamespace(refuse=lambda _: None, **PUTS),  # type: ignore[arg-type]
    )
    for _ in range(passed):
        journey.compare_inputs((torch.full((2,), own),), {})
        journey.pass_over(None, set(), [])
    journey.compare_inputs((torch.full((2,), own),), {})
    with pytest.raises(StateMismatch, match="other values") if refused else nullcontext():
        journey.begin_step()


@pytest.mark.parametrize("reads", ["kept", "made"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_call_is_read_again_once_what_the_rank_has_kept_is_put(reads: str, apart: bool) -> None:
    """The rank was lost behind this step, the first of several. Of the next one nothing is known
    yet."""
    values = {name: SimpleNamespace(x=torch.zeros(2)) for name in ("kept", "made")}

    def load_small(states: dict[str, bytes], *, on_the_way: bool) -> None:
        for name, state in states.items():
            values[name].x = torch.full((2,), float(state))

    def step(*args: Any) -> None:
        frames.append(sys._getframe(1))
        journey.compare_inputs(args, {})

    frames: list[Any] = []
    draws = SimpleNamespace(begin_step=lambda: None, end_step=lambda: None)
    member: Any = SimpleNamespace(
        calls=Step(2),
        draws=draws,
        tracked=SimpleNamespace(load_small=load_small, small_states=dict),
        variables=SimpleNamespace(frames=lambda _: frames),
    )
    record = RankRecord(
        *(Step(4), False, Step(3), [], Moment(b"", {}), None),
        inputs=[3, hash_of((torch.ones(2),), {})],
        begun=Begun(b"captured", {"kept": b"1"}),
    )
    asked: list[Begun] = []

    def not_begun(begun: Begun) -> list[str]:
        asked.append(begun)
        return ["a difference"] if apart else []

    def refuse(differences: list[str]) -> None:
        if differences:
            raise StateMismatch("variables")

    journey = Journey(
        member,
        Way(Rank(1), record, Step(3)),
        closing=False,
        arrive=lambda: None,
        refusal=SimpleNamespace(not_begun=not_begun, refuse=refuse, **PUTS),  # type: ignore[arg-type]
    )
    step(values[reads].x)
    assert asked == [record.begun]
    journey.pass_over(None, set(), [])
    step(values[reads].x)
    refused = "variables" if apart else "other values"
    alike = reads == "kept" and not apart
    with nullcontext() if alike else pytest.raises(StateMismatch, match=refused):
        journey.begin_step()


@pytest.mark.parametrize("closing", [False, True])
def test_committed_steps_are_passed_over_and_the_last_one_arrives_if_none_follows(
    closing: bool,
) -> None:
    arrived: list[int] = []
    draws = SimpleNamespace(begin_step=lambda: None, end_step=lambda: None)
    tracked = SimpleNamespace(load_small=lambda states, **more: None)
    member: Any = SimpleNamespace(calls=Step(3), draws=draws, tracked=tracked)
    rows = [row_bytes(Row(step=Step(4), at_us=1, values={"loss": 0.25}))]
    record = RankRecord(Step(6), True, Step(4), [], Moment(b"", {}), None, rows)
    journey = Journey(
        member,
        Way(Rank(1), record, Step(5)),
        closing=closing,
        arrive=lambda: arrived.append(member.calls),
        refusal=SimpleNamespace(**PUTS),  # type: ignore[arg-type]
    )
    journey.silence.values = journey.silence.since_fetch = 3
    assert journey.passes_over
    kind = torch.empty((), device="meta")
    assert journey.pass_over(kind, {"loss"}, []).item() == 0.25
    assert (member.calls, journey.silence.values, arrived) == (4, 0, [])
    assert journey.silence.since_fetch == 3  # Up to the next fetch that is compared.
    with pytest.raises(StateMismatch):  # Nobody has reported it.
        journey.pass_over(kind, {"loss"}, []).isnan()
    assert arrived == ([5] if closing else [])
    assert not journey.passes_over


def test_where_steps_raise_behind_their_update_none_is_passed_over() -> None:
    draws = SimpleNamespace(begin_step=lambda: None, end_step=lambda: None)
    tracked = SimpleNamespace(load_small=lambda states, **more: None)
    member: Any = SimpleNamespace(calls=Step(4), draws=draws, tracked=tracked)
    record = RankRecord(Step(6), True, Step(5), [], Moment(b"", {}), None, [], raises=True)
    variables: Any = SimpleNamespace(frames=lambda frame: [frame])
    refusal = Refusal(Rank(1), variables, loops=Any, script_graph=Any)  # type: ignore[arg-type]
    journey = Journey(
        member,
        Way(Rank(1), record, Step(5)),
        closing=False,
        arrive=lambda: None,
        refusal=refusal,
    )
    with pytest.raises(StateMismatch, match="raise exceptions behind their update"):
        journey.pass_over(None, set(), [])
    assert "whether step 5 did" in refusal.why
