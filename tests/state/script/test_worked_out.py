"""What a statement has read before it fetches is worked out without the script's own code."""

import ast
from types import SimpleNamespace

import pytest

from trainmover.state.script.worked_out import Unknown, worked_out


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
