"""What a loop around a fetch goes through is compared, as it was when the loop began."""

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import captures
import pytest

from trainmover.state.script.rounds import Unknown, gone_through, worked_out


class Plan:
    few = 2
    __slots__ = ("many",)

    def __init__(self) -> None:
        self.many = 3

    @property
    def asked(self) -> int:
        raise AssertionError("the script's own code was run")


NAMES = {"plan": Plan(), "job": SimpleNamespace(steps=20), "table": {"a": [1, 4]}, "f": lambda: 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("range(plan.many)", range(3)),
        ("range(plan.few * 2 - 1)", range(3)),
        ("range(2 if job.steps < 20 else max(table['a']))", range(4)),
        ("range(len(table['a']))", range(2)),
        ("table['a']", [1, 4]),
        ("range(-table['a'][0] + (not job.steps == 3))", range(0)),
    ],
)
def test_it_is_worked_out_from_what_the_names_stand_for(text: str, value: object) -> None:
    assert worked_out(ast.parse(text, mode="eval").body, NAMES, {}) == value


@pytest.mark.parametrize(
    "text",
    [
        "range(plan.asked)",
        "range(f())",
        "range(plan.none)",
        "plan[0]",
        "range(table['b'])",
        "range(job.steps // 0)",
        "(one for one in table['a'])",
    ],
)
def test_what_only_the_script_s_code_could_tell_is_not_known(text: str) -> None:
    with pytest.raises(Unknown):
        worked_out(ast.parse(text, mode="eval").body, NAMES, {})


NAMES_ALONE = {"many": 3, "each": (1, 2), "kept": [1, 2], "f": lambda: 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("range(many)", range(3)),
        ("each", (1, 2)),
        ("f(many)", [None, 3]),
        ("range(many).__iter__()", [range(3)]),
        ("zip(kept, range(many), strict=True)", [None, None, range(3), True]),
        ("enumerate(zip(each, kept))", [None, [None, (1, 2), None]]),
        ("(0, 0) * many", [[0, 0], 3]),
        ("f[:many]", [None, [3]]),
    ],
)
def test_of_what_is_not_known_it_is_what_that_is_made_of(text: str, value: object) -> None:
    assert gone_through(ast.parse(text, mode="eval").body, NAMES_ALONE, {}) == value


@pytest.mark.parametrize("text", ["kept", "many", "f()", "enumerate(kept)", "f(f())"])
def test_what_a_loop_sees_as_it_is_put_is_no_round(text: str) -> None:
    with pytest.raises(Unknown):
        gone_through(ast.parse(text, mode="eval").body, NAMES_ALONE, {})


LOOPS = {
    "a loop": """
        while plan.steps < 5:
            for _ in range(plan.many):
                next(it)
            more()
    """,
    "a comprehension": """
        while plan.steps < 5:
            [next(it) for _ in range(plan.many)]
            more()
    """,
    "a choice": """
        while plan.steps < 5:
            for _ in range(2 if plan.steps < 3 else 3):
                next(it)
            more()
    """,
}
PLAN = """
plan, it = types.SimpleNamespace(many=2, steps=0), job.batches(DATA)
def more():
    plan.steps += 1
    plan.many += plan.steps == 3
"""


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_rounds_that_are_others_are_named(tmp_path: Path, loop: str) -> None:
    run = captures.run_in(tmp_path, PLAN + textwrap.dedent(loop))
    named = {one.name: one for one in run.differences(joiner=0, rank=10)}
    [rounds] = [one for name, one in named.items() if name.startswith("rounds over range(")]
    assert (rounds.theirs, rounds.own) == ("range(0, 3)", "range(0, 2)")
    assert rounds.line > 0


def test_they_are_as_when_the_loop_began_though_state_is_put_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[bool] = []

    def fetch(job: captures.Job, batches: Iterator[object]) -> object:
        variables = job.variables
        variables.stand()
        before = variables.capture(full=True)
        job.tracked["plan"].many = 3  # type: ignore[attr-defined]
        for _ in range(2):
            now = variables.capture(full=True)
            named.append("rounds over" in str(variables.comparison.differences(before, now)))
            variables.gave(1)
        return next(batches)

    monkeypatch.setattr(captures.Job, "fetch", fetch)
    script = """
        plan, it = types.SimpleNamespace(many=2), job.batches(DATA)
        job.tracked["plan"] = plan
        for _ in range(plan.many):
            next(it)
            break
    """
    captures.run_in(tmp_path, script)
    assert named == [False, True]


def test_those_of_the_next_phase_are_its_own(tmp_path: Path) -> None:
    """The loop over data has ended, and a function with one around it is called again."""
    script = """
        def train(passes):
            for _ in range(passes):
                for x in job.batches([1, 2]):
                    pass

        train(1)
        train(3)
    """
    run = captures.run_in(tmp_path, script)
    first_of_second = 3  # Two batches, and the end.
    named = {one.name: one for one in run.differences(joiner=0, rank=first_of_second)}
    rounds = named["rounds over range(passes)"]
    assert (rounds.theirs, rounds.own) == ("range(0, 3)", "range(0, 1)")
