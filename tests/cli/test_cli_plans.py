"""`trainmover roll`, `place`, `plan`: many moves of a live run, and what is refused."""

import json
from pathlib import Path

import pytest
from runs_of_trainmover import Running, nothing_left, until_said

from trainmover.cli.main import main
from trainmover.cli.steer.plans import placed
from trainmover.errors import UserError


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    capsys.readouterr()
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def seats(capsys: pytest.CaptureFixture[str]) -> dict[str, list[int]]:
    _, status = asked(capsys, "status")
    return {one["id"]: one["ranks"] for one in status["machines"]}  # type: ignore[attr-defined]


def test_every_machine_has_its_turn_and_ranks_go_where_a_file_says(
    start: type[Running], own_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start()
    running.until_warm()
    code, plan = asked(capsys, "roll", "--reason", "new kernel")
    assert (code, plan["standing"], plan["moves"]) == (0, "done", 2), plan
    assert sorted(map(str, plan["over"])) == ["m1", "m2", "m3"]  # type: ignore[call-overload]
    until_said("asks: roll all machines (new kernel)")
    before = seats(capsys)
    one, other = (next(name for name, has in before.items() if has == [rank]) for rank in (0, 1))
    file = tmp_path / "wanted.json"
    file.write_text(json.dumps([other, one]))
    assert main(["place", "--from", str(file), "--dry-run"]) == 0
    would = f"slot 0: {one} -> {other}, slot 1: {other} -> {one}. Nothing was done.\n"
    assert (capsys.readouterr().out, seats(capsys)) == (would, before)
    assert main(["place", "--from", str(file)]) == 0
    assert "Placement 2 is done: 2 of 2 machines, 3 moves" in capsys.readouterr().out
    after = seats(capsys)
    assert (after[other], after[one]) == ([0], [1])
    function = tmp_path / "racks.py"
    function.write_text("def assign(status):\n    return {1: 'm9'}\n")
    code, answer = asked(capsys, "place", "--by", f"{function}:assign")
    assert (code, answer["ok"]) == (1, False)
    assert "There is no machine m9" in str(answer["text"])
    assert asked(capsys, "place", "--by", f"{function}:assign", "--dry-run") == (1, answer)
    assert asked(capsys, "plan")[1]["standing"] == "done"
    assert main(["stop"]) == 0
    assert running.ended()[0] == 143
    assert nothing_left(running, own_home)


def test_one_that_waits_for_people_is_stopped_and_goes_on(
    start: type[Running], own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start()
    running.until_warm()
    assert main(["plan"]) == 0
    assert capsys.readouterr().out == "There is no plan.\n"
    code, answer = asked(capsys, "roll", "--hold", "--detach")
    assert (code, answer["ok"]) == (0, True)
    assert asked(capsys, "plan")[1]["away"] == ["m3"]
    assert asked(capsys, "roll", "--detach")[0] == 1
    assert asked(capsys, "plan", "stop", "--reason", "it is late")[0] == 0
    assert "Roll 1 has stopped: it is late" in str(asked(capsys, "plan")[1]["text"])
    assert asked(capsys, "plan", "stop")[0] == 1
    assert asked(capsys, "plan", "continue")[0] == 0
    assert asked(capsys, "uncordon", "m3")[0] == 0
    until_said("roll 1")
    assert main(["stop"]) == 0
    assert running.ended()[0] == 143
    assert nothing_left(running, own_home)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"2": "m1"}, "none of the slots 0 to 1"),
        ({"-1": "m1"}, "none of the slots 0 to 1"),
        ({"first": "m1"}, "none of the slots 0 to 1"),
        ({"0": 1}, "none of the slots 0 to 1"),
        ([1, 2], "A list is no assignment"),
        ("m1", "A str is no assignment"),
        (None, "A NoneType is no assignment"),
    ],
)
def test_what_is_no_assignment_is_told(given: object, words: str) -> None:
    with pytest.raises(UserError) as told:
        placed(given, ["m1", "m2"])
    assert words in str(told.value)
    assert "Nothing was done" in str(told.value)


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        ("", ["--from", "{folder}/none.json"], "cannot be read"),
        ("m1, m2", ["--from", "{file}"], "cannot be read"),
        ("", ["--by", "{folder}/none.py:assign"], "names no function in a file"),
        ("", ["--by", "assign"], "names no function in a file"),
        ("def other(status): ...", ["--by", "{file}:assign"], "It has: other."),
        ("def a(s): ...", ["--by", "{file}:a", "--every", "soon"], "--every soon is no span"),
        ("def a(s): ...", ["--by", "{file}:a", "--every", "9s", "--detach"], "exclude each other"),
    ],
)
def test_what_cannot_be_read_is_told(
    text: str, flags: list[str], words: str, tmp_path: Path, own_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "racks.py"
    file.write_text(text)
    given = [flag.format(folder=tmp_path, file=file) for flag in flags]
    assert main(["place", *given]) == 2
    assert words in capsys.readouterr().err
