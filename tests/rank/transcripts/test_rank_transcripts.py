"""What a rank answers and remembers: `*.txt`, in the form that `tests.transcript` has.

`table` is of one question, asked at all the places around its limits.
"""

import itertools
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.transcript import changes, check, in_a_line, shown, titles
from trainmover.errors import StateMismatch, UserError
from trainmover.protocol import messages
from trainmover.rank import cuts, standing, told

EVERY = titles(Path(__file__).parent)


class Snapshot(NamedTuple):
    rank: int
    step: int


def row(step: int) -> messages.Row:
    return messages.Row(step=step, at_us=0, values={})


def switch(epoch: int) -> messages.Switch:
    return messages.Switch(epoch=epoch, committed=7, sources={}, records={}, buddies={})


def verdict(epoch: int, committed: int) -> messages.Verdict:
    return messages.Verdict(epoch=epoch, committed=committed)


def table(question: str, **each: tuple[Any, ...]) -> Iterator[str]:
    """A rank in epoch 2 that has committed step 7 is asked this, with each of these fields."""
    for values in itertools.product(*each.values()):
        fields = dict(zip(each, values, strict=True))
        one = standing.Standing(
            **{"live": True, "epoch": 2, "ordered": 2, "committed": 7, **fields}
        )
        its = ", ".join(f"{name} {_short(value)}" for name, value in fields.items())
        yield f"{its}: {_answer(one, question)}"


def _short(value: Any) -> str:
    """Of an order its epoch, and what it is to commit."""
    match value:
        case messages.Verdict(epoch=epoch, committed=committed):
            return f"of {epoch} for step {committed}"
        case messages.Switch(epoch=epoch):
            return f"of {epoch}"
        case _:
            return shown(value)


def entered(*moments_ns: int) -> told.Rows[int]:
    """A row at each."""
    rows = told.Rows[int](4)
    for step, now_ns in enumerate(moments_ns):
        rows.enter(row(step), step, now_ns)
    return rows


WORDS: dict[str, Any] = {
    **vars(messages), **vars(standing), **vars(cuts), **vars(told),
    **{one.__name__: one for one in (Snapshot, row, switch, verdict, entered)},
}  # fmt: skip


def _answer(it: Any, line: str) -> str:
    try:
        return shown(eval(line, {**WORDS, "it": it}))
    except (standing.Unwind, StateMismatch, UserError) as error:
        return f"{type(error).__name__}: {in_a_line(str(error))}".rstrip(": ")


def _happens(it: Any, line: str) -> tuple[Any, Iterator[str]]:
    if line.startswith("table("):
        return it, eval(line, {**WORDS, "table": table})
    before = deepcopy(vars(it))
    answer = _answer(it, line)
    said = [] if answer == "None" else [f"= {answer}"]
    return it, iter([*said, *changes(before, dict(vars(it)))])


@pytest.mark.parametrize(("file", "title"), EVERY, ids=[title for _, title in EVERY])
def test_what_it_answers_is_what_is_written(
    file: Path, title: str, request: pytest.FixtureRequest
) -> None:
    check(file, title, WORDS, _happens, anew=request.config.getoption("--rewrite"))
