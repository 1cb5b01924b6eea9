"""The dispatcher: three lines for every mistake, exit status 2 for the user's."""

import json

import pytest

from trainmover.cli.completion import commands
from trainmover.cli.main import main
from trainmover.cli.verbs import VERBS
from trainmover.version import VERSION

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.mark.parametrize("argv", [[], ["explode"], ["--what"]])
def test_a_wrong_command_is_three_lines_and_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 3
    assert "trainmover run" in err


@pytest.mark.parametrize("verb", ["status", "move", "kill", "events"])
def test_without_a_run_every_verb_says_how_to_start_one(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [verb, "m1"] if verb in ("move", "kill") else [verb]
    assert main(argv) == 2
    assert "No run is alive here." in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["move", "kill"])
def test_a_missing_machine_is_three_lines(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == 2
    assert "required: machine" in capsys.readouterr().err


def test_version_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert f"trainmover {VERSION}" in capsys.readouterr().out
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trainmover"] == VERSION


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {verb} " in shown for verb in VERBS)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["cordon"], "required: machine."),
        (["drain", "m1", "--deadline", "-5s"], "begins with a dash so: --deadline=VALUE."),
        (["drain", "m1", "--deadline=-5s"], "is no span of time that is yet to come."),
        (["checkpoints", "nowhere"], "There is no folder nowhere."),
        (["trace", "-o", "x.pdf"], "--out x.pdf is none of .json and .svg."),
    ],
)
def test_a_slip_is_told_by_what_is_wrong(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert (out, said in err) == ("", True), err


def test_no_flag_is_completed_twice() -> None:
    for command in commands():
        names = [name for flag in command.flags for name in flag.names]
        assert sorted(set(names)) == sorted(names)
