"""`trainmover simulate`: its exit status, and what it says."""

import json

import pytest

from trainmover.cli import simulate
from trainmover.cli.verbs import parser_of
from trainmover.errors import UserError
from trainmover.simulator import story
from trainmover.simulator.happenings import Violation


def simulated(argv: list[str]) -> int:
    return simulate.main(parser_of("simulate").parse_args(argv))


def test_seeds_without_a_violation_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(["--seeds", "3..6", "--minutes", "0.05"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("3 seeds, ")
    assert "incidents (" in said


def test_a_trace_has_a_line_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(["--seed", "3", "--trace", "--minutes", "0.05"]) == 0
    said = capsys.readouterr().out
    assert "MachineJoined(machine=m1" in said
    assert "-> m1: StartWorkers" in said


def test_json_is_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(["--seed", "3", "--minutes", "0.05", "--json", "--coverage"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["seeds"], said["failed"]) == (1, [])
    assert said["reached"] > 20


def test_a_violation_is_shown_with_the_command_that_plays_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise Violation("two and two are five")

    monkeypatch.setattr(story, "legitimate", broken)
    flags = ["--minutes", "0.05", "--faults", "move,death"]
    assert simulated(["--seeds", "3..4", *flags]) == 1
    said = capsys.readouterr().out
    assert "two and two are five" in said
    assert f"trainmover simulate --seed 3 --trace {' '.join(flags)}" in said


@pytest.mark.parametrize("flags", [["--seeds", "five"], ["--faults", "earthquake"]])
def test_what_cannot_be_simulated_is_refused(flags: list[str]) -> None:
    with pytest.raises(UserError):
        simulated(flags)
