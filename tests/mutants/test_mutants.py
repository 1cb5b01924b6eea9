"""The run that changes the code line by line, on code of its own."""

import argparse
import ast
import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import mutants
import one_line
import pytest
from forked import Child, Hung, plant, within

CHANGES = {
    "negate": ("if a == b:\n        return 1", "if a != b:\n        return 1"),
    "never": ("if a:\n        return b", "if False:\n        return b"),
    "boundary": ("return a < b", "return a <= b"),
    "logic": ("return a and b", "return a or b"),
    "operand": ("return a and b", "return b"),
    "plain": ("return not a", "return a"),
    "number": ("return a + 1", "return a - 1"),
    "end": ("return a[-1]", "return a[0]"),
    "drop": ("a.append(b)\n    return a", "pass\n    return a"),
    "forget": ("return (a, (b, c))", "return (a, (c,))"),
    "nothing": ("return replace(a, x=b)", "return a"),
    "case": (
        "match a:\n        case 3:\n            return b",
        "match a:\n        case 3 if False:\n            return b",
    ),
}


def function(body: str) -> str:
    return ast.unparse(ast.parse(f"def f(a, b, c):\n    {body}"))


def all_changed(source: str) -> list[str]:
    return [
        ast.unparse(one_line.changed(source, number)) for number in range(one_line.count(source))
    ]


@pytest.mark.parametrize("kind", CHANGES)
def test_a_line_is_changed_in_that_way(kind: str) -> None:
    before, after = map(function, CHANGES[kind])
    made = {
        one_line.change_of("m", before, number).kind: text
        for number, text in reversed(list(enumerate(all_changed(before))))
    }
    assert made[kind] == after


def test_every_change_gives_another_module_that_compiles() -> None:
    for module in ("controller.change.verdict", "rank.told"):
        source = mutants.path_of(module).read_text()
        texts = all_changed(source)
        assert len(texts) > 20
        assert ast.unparse(ast.parse(source)) not in texts
        for number in range(len(texts)):
            compile(one_line.changed(source, number), module, "exec")


@pytest.mark.parametrize(
    "body",
    [
        "'what it is for'",
        "assert a is not None",
        "return 'one' if a else 'two'",
        "return f'{a if b else c} of {a + 1}'",
        "return 250_000",
    ],
)
def test_words_and_assertions_and_durations_are_left_alone(body: str) -> None:
    assert one_line.count(function(body)) == 0


def test_a_seed_draws_the_same_changes_and_more_begin_with_the_same() -> None:
    few, many = mutants.drawn("s", 3), mutants.drawn("s", 5)
    assert many[:3] == few
    assert len({change.id for change in many}) == 5
    assert mutants.drawn("t", 5) != many
    assert {change.module.partition(".")[0] for change in mutants.drawn("s", 100)} == {
        "controller",
        "rank",
    }


# --- processes ------------------------------------------------------------------------------------


def in_child(act: Any) -> dict[str, Any] | None:
    child = Child(act)
    return child.said()


def test_who_imports_the_module_there_gets_the_changed_one(tmp_path: Path) -> None:
    path = tmp_path / "counted_here.py"
    path.write_text("def twice(a):\n    return a + a\n")
    (tmp_path / "asks_here.py").write_text("from counted_here import twice\nGOT = twice(3)\n")

    def ask() -> dict[str, Any]:
        sys.path.insert(0, str(tmp_path))
        plant("counted_here", path, one_line.changed(path.read_text(), 0))
        import asks_here  # type: ignore[import-not-found]

        return {"got": asks_here.GOT}

    assert in_child(ask) == {"got": 3}
    assert "counted_here" not in sys.modules


def test_what_is_imported_already_cannot_be_changed() -> None:
    def again() -> dict[str, Any]:
        plant("one_line", Path("one_line.py"), ast.parse(""))
        return {}

    with pytest.raises(RuntimeError, match="one_line is imported already"):
        in_child(again)


def test_what_goes_wrong_there_is_told_and_is_no_change_that_is_found() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        in_child(lambda: {"never": 1 // 0})
    assert in_child(die) is None


def test_who_is_forked_ends_with_who_has_asked(tmp_path: Path) -> None:
    """The run may be killed at any moment, to be continued."""
    lock = tmp_path / "lock"
    lock.touch()

    def wait() -> dict[str, Any]:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(600)
        return {}

    def fork_and_die() -> dict[str, Any]:
        Child(wait)
        while _is_free(lock):
            time.sleep(0.01)
        return die()

    assert in_child(fork_and_die) is None
    while not _is_free(lock):
        time.sleep(0.01)


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def die() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def test_what_does_not_end_is_ended() -> None:
    def spin() -> dict[str, Any]:
        try:
            with within(0.05):
                while True:
                    pass
        except Hung:
            return {"ended": True}

    assert in_child(spin) == {"ended": True}


# --- a run ----------------------------------------------------------------------------------------


def line(by: str) -> dict[str, Any]:
    return {"by": by, "how": "", "what": "a is b", "cpu_s": 1.0}


def test_it_goes_on_where_it_was_and_only_in_this_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def put_to_the_test(change: one_line.Change, worlds: int) -> dict[str, Any]:
        return {"by": mutants.NOBODY, "how": change.id, "cpu_s": 0.0}

    monkeypatch.setattr(mutants, "put_to_the_test", put_to_the_test)
    options = argparse.Namespace(results=tmp_path / "lines", minutes=1.0, workers=2, worlds=1)
    every = mutants.drawn("s", 5)
    first = mutants.campaign(every[:3], options, "this")
    assert [one["how"] for one in first.values()] == [change.id for change in every[:3]]

    def note(left: list[one_line.Change], _: object) -> list[object]:
        tried.extend(one.id for one in left)
        return []

    monkeypatch.setattr(mutants, "_tried", note)
    mutants.campaign(every, options, "this")
    assert tried == [change.id for change in every[3:]]
    tried.clear()
    mutants.campaign(every, options, "another")
    assert tried == [change.id for change in every]


def test_no_change_is_begun_when_time_is_up(tmp_path: Path) -> None:
    options = argparse.Namespace(results=tmp_path / "lines", minutes=0.0, workers=2, worlds=1)
    assert mutants.campaign(mutants.drawn("s", 2), options, "this") == {}


def test_shares_are_of_all_that_were_tried() -> None:
    of = [mutants.SIMULATOR] * 10 + [mutants.TESTS] * 9 + [mutants.NOBODY]
    done = {str(number): line(by) for number, by in enumerate(of)}
    assert mutants.shares(done) == (0.5, 0.95)
    assert all(claim.holds for claim in mutants.claims(done, 20))
    assert not all(claim.holds for claim in mutants.claims(done, 21)), "one was not tried"
    done["0"] = line(mutants.NOBODY)
    assert [claim.holds for claim in mutants.claims(done, 20)] == [False, True]
