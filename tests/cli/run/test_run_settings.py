"""Flags from a file and the environment count as if typed before the command line's."""

import json
from pathlib import Path

import pytest

from trainmover.cli.main import main
from trainmover.cli.run.parser import known_flags, own_flags
from trainmover.cli.run.settings import NOT_IN_ENVIRONMENT, settings, with_settings
from trainmover.errors import UserError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str | bytes, name: str = "trainmover.toml") -> None:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def test_without_file_and_variables_a_command_line_is_what_was_typed() -> None:
    assert with_settings(["--standbys", "1", "train.py"]) == ["--standbys", "1", "train.py"]


def test_what_is_typed_counts_before_a_variable_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write('machines = 4\nstandbys = 1\nno_watch = true\nno-auto = false\nengine-args = "-p gpu"\n')
    monkeypatch.setenv("TRAINMOVER_STANDBYS", "2")
    monkeypatch.setenv("TRAINMOVER_FALSE_ALARMS", "0.5")
    argv = with_settings(["--machines=8", "train.py", "--standbys", "7"])
    flags, left = known_flags().parse_known_args(argv)
    assert left == []
    assert (flags.machines, flags.standbys, flags.false_alarms) == (8, 2, 0.5)
    assert (flags.no_watch, flags.no_auto, flags.engine_args) == (True, False, "-p gpu")
    assert flags.training_script_args == ["--standbys", "7"]


def test_a_file_may_be_named_and_have_torchruns_flags() -> None:
    write("standbys = 1\n")
    write("nproc-per-node = 8\nmodule = true\n", "cluster.toml")
    argv = ["--config", "cluster.toml", "train"]
    assert with_settings(argv) == ["--nproc-per-node=8", "--module", *argv]


def test_every_flag_of_ours_has_a_variable_but_those_that_are_named() -> None:
    words = {"--no-watch": "1", "--no-auto": "yes", "--no-progress": "ON"}
    for flag in own_flags().keys() - NOT_IN_ENVIRONMENT:
        if flag == "--standby":  # The older word for the same.
            continue
        variable = "TRAINMOVER_" + flag[2:].replace("-", "_").upper()
        (found,) = settings([], {variable: words.get(flag, "3")})
        assert (found.flag, found.source) == (flag, variable)
        assert found.value == (None if flag in words else "3")
    for flag in NOT_IN_ENVIRONMENT:
        assert settings([], {"TRAINMOVER_" + flag[2:].replace("-", "_").upper(): "3"}) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("standby_s = 2\n", "has 'standby_s', and trainmover run has no such flag"),
        ("[run]\nstandbys = 2\n", "has 'run'"),
        ("config = 'x'\n", "has 'config'"),
        ("standbys = [2]\n", "'standbys' in trainmover.toml must be a text or a number"),
        ("standbys = true\n", "must be a text or a number"),
        ("no-watch = 1\n", "'no-watch' in trainmover.toml must be true or false"),
        ("standbys = \n", "is no TOML"),
        (b"\xff\xfe\x00", "is no TOML"),
    ],
)
def test_a_wrong_file_starts_nothing(text: str | bytes, said: str) -> None:
    write(text)
    with pytest.raises(UserError, match=said) as caught:
        with_settings(["train.py"])
    assert "Nothing was started" in str(caught.value)


def test_a_flag_like_it_is_named() -> None:
    write("standbies = 2\n")
    with pytest.raises(UserError, match="Did you mean --standbys"):
        with_settings(["train.py"])


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"none\.toml cannot be read"):
        with_settings(["--config=none.toml", "train.py"])


def test_a_switch_in_the_environment_is_on_or_off() -> None:
    assert settings([], {"TRAINMOVER_NO_WATCH": "0"}) == []
    with pytest.raises(UserError, match="TRAINMOVER_NO_WATCH is 'perhaps'"):
        settings([], {"TRAINMOVER_NO_WATCH": "perhaps"})


def test_config_shows_what_there_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["config"]) == 0
    assert "no trainmover.toml here" in capsys.readouterr().out
    write("standbys = 1\nno-watch = true\n")
    monkeypatch.setenv("TRAINMOVER_STANDBYS", "2")
    assert main(["config"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[1].split() == ["--standbys", "1", "trainmover.toml"]
    assert lines[2].split() == ["--no-watch", "on", "trainmover.toml"]
    assert lines[3].split() == ["--standbys", "2", "TRAINMOVER_STANDBYS"]
    assert main(["config", "--json"]) == 0
    last = json.loads(capsys.readouterr().out)[-1]
    assert last == {"flag": "--standbys", "value": "2", "from": "TRAINMOVER_STANDBYS"}
